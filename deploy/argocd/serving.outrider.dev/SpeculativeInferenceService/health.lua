-- Health of a SpeculativeInferenceService for Argo CD, in the form of its resource_customizations: base library only.
--
-- Argo CD fails a sync on Degraded and waits on Progressing. So what time or the cluster mends by itself (a start, a node
-- that has yet to come) is Progressing, and what somebody has to mend is Degraded. Loss of metrics or of the autoscaler
-- is neither: the service serves, and what was synced is right; the message tells it.

local mends_itself = {
  ConfigurationMissing = true,
  Conflict = true,
  EngineCrashed = true,
  NamespaceTerminating = true,
  NoFreeGPU = true,
  NoPods = true,
  PodFailed = true,
  Replacing = true,
  SecretAppeared = true,
  Starting = true,
  Unschedulable = true,
  VolumeClaimNotBound = true,
}

local function health(status, message)
  return { status = status, message = message }
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "being deleted")
end

local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "the operator has not seen this spec yet")
end

local by_type = {}
for _, condition in ipairs(status.conditions or {}) do
  by_type[condition.type] = condition
end

local function is(type, value)
  return by_type[type] ~= nil and by_type[type].status == value
end

local function told(type)
  return by_type[type].reason .. ": " .. (by_type[type].message or "")
end

if is("Stalled", "True") then
  return health("Degraded", told("Stalled"))
end
if is("RolloutProgressing", "False") then
  return health("Progressing", told("RolloutProgressing"))
end
if is("Reconciling", "True") then
  return health("Progressing", told("Reconciling"))
end
if by_type.Ready == nil then
  return health("Progressing", "no condition Ready yet")
end

if is("Ready", "False") and not mends_itself[by_type.Ready.reason] then
  return health("Degraded", told("Ready"))
end
if is("Paused", "True") then
  return health("Suspended", told("Paused"))
end
if not is("Ready", "True") then
  return health("Progressing", told("Ready"))
end

local message = told("Ready")
for _, type in ipairs({ "MetricsAvailable", "AutoscalingReady", "ScheduleApplied", "SpeculationHealthy" }) do
  if is(type, "False") and by_type[type].reason ~= "Delivering" then
    message = message .. "; " .. type .. " is False, " .. told(type)
  end
end
return health("Healthy", message)
