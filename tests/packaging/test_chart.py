"""What the chart renders, by the real Helm and without a cluster."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.settings import Settings, variable
from tests.testbed.helm import CHART, Helm

MONITORING = (
    "--api-versions=monitoring.coreos.com/v1",
    "--api-versions=monitoring.coreos.com/v1/PodMonitor",
    "--api-versions=monitoring.coreos.com/v1/ServiceMonitor",
    "--api-versions=monitoring.coreos.com/v1/PrometheusRule",
)
"""What Helm finds on a cluster with the Prometheus operator."""
EVERYTHING: dict[str, Any] = {
    "metrics": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Outrider"}},
    "networkPolicy": {"enabled": True, "extraEgress": [{"ports": [{"port": 3128}]}]},
    "prometheus": {
        "url": "https://store.example:8443/prometheus",
        "headers": {"X-Scope-OrgID": "ml", "X-Team": "serving"},
        "basicAuth": {"username": "outrider", "secretName": "store"},
        "certificateAuthority": {"configMapName": "store-ca"},
        "clientCertificate": {"secretName": "store-client"},
    },
    "keda": {"prometheusUrl": "http://store", "triggerAuthentication": "store", "authModes": ["basic", "tls"]},
    "control": {"paused": True, "periodSeconds": 10, "leaseSeconds": 600},
    "logLevel": "DEBUG",
    "watchNamespaces": ["ml", "research"],
    "commonLabels": {"team": "platform"},
    "imagePullSecrets": ["registry"],
    "image": {"digest": "sha256:" + "0" * 64},
    "serviceAccount": {"annotations": {"a": "b"}},
    "podLabels": {"c": "d"},
    "podAnnotations": {"e": "f"},
    "nodeSelector": {"g": "h"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "important",
}
"""Every optional part, and every value that reaches the pod."""


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    path = tmp_path / "everything.yaml"
    path.write_text(yaml.safe_dump(EVERYTHING))
    return path


def kinds(objects: list[dict[str, Any]]) -> set[str]:
    return {one["kind"] for one in objects}


def one(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


def environment(objects: list[dict[str, Any]]) -> dict[str, str]:
    """Variables of the operator that have a value."""
    container = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


class TestRendering:
    def test_the_linter_finds_nothing(self, helm: Helm, everything: Path) -> None:
        for values in ((), ("--values", everything)):
            told = helm.run("lint", "--strict", CHART, *values).stdout
            assert "0 chart(s) failed" in told
            faults = [line for line in told.splitlines() if line.startswith(("[WARNING]", "[ERROR]"))]
            assert faults == []

    def test_the_same_values_give_the_same_text(self, helm: Helm, everything: Path) -> None:
        arguments = ("--values", everything, *MONITORING)
        assert helm.template(*arguments) == helm.template(*arguments)

    def test_nothing_is_asked_of_the_cluster_or_of_chance(self) -> None:
        """Either would differ at each sync of a GitOps tool."""
        for path in (CHART / "templates").iterdir():
            text = " ".join(re.findall(r"{{.*?}}", path.read_text(), re.DOTALL))
            for word in (
                "lookup ",
                "rand",
                "uuidv4",
                "genCA",
                "genSelfSigned",
                "genSigned",
                "now ",
                "Release.Revision",
            ):
                assert word not in text, path.name

    def test_the_definition_is_installed_unless_that_is_turned_off(self, helm: Helm) -> None:
        definition = one(helm.render(), "CustomResourceDefinition")
        assert definition == yaml.safe_load((CHART / "files" / "crd.yaml").read_text())
        assert "CustomResourceDefinition" not in kinds(helm.render("--set", "crds.install=false"))

    def test_everything_in_a_namespace_is_in_the_releases(self, helm: Helm) -> None:
        whole = {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
        spaces = {each["kind"]: each["metadata"].get("namespace") for each in helm.render()}
        assert {kind: where for kind, where in spaces.items() if kind not in whole} == {
            "ServiceAccount": "outrider-system",
            "Deployment": "outrider-system",
            "Service": "outrider-system",
            "Role": "outrider-system",
            "RoleBinding": "outrider-system",
        }

    def test_every_object_has_our_labels_and_the_users(self, helm: Helm, everything: Path) -> None:
        for each in helm.render("--values", everything, *MONITORING):
            if each["kind"] != "CustomResourceDefinition":
                labels = each["metadata"]["labels"]
                assert labels["app.kubernetes.io/name"] == "outrider", each["kind"]
                assert labels["team"] == "platform", each["kind"]

    def test_names_follow_the_release(self, helm: Helm) -> None:
        for release, name in (("outrider", "outrider"), ("a", "a-outrider"), ("my-outrider", "my-outrider")):
            text = helm.run("template", release, CHART).stdout
            found = [each for each in yaml.safe_load_all(text) if each and each["kind"] == "Deployment"]
            assert [each["metadata"]["name"] for each in found] == [name]
        assert one(helm.render("--set", "fullnameOverride=x"), "Deployment")["metadata"]["name"] == "x"


class TestOptionalParts:
    def test_by_default_there_are_none(self, helm: Helm) -> None:
        assert kinds(helm.render(*MONITORING)) == {
            "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
            "Deployment", "Service",
        }  # fmt: skip

    def test_what_the_cluster_does_not_know_is_left_out(self, helm: Helm, everything: Path) -> None:
        without, within = (kinds(helm.render("--values", everything, *apis)) for apis in ((), MONITORING))
        assert within - without >= {"PodMonitor"}
        assert {"NetworkPolicy", "Deployment", "Role"} <= without
        assert not {"PodMonitor", "ServiceMonitor", "PrometheusRule"} & without

    def test_a_service_monitor_takes_the_pod_monitors_place(self, helm: Helm) -> None:
        objects = helm.render("--set", "metrics.serviceMonitor.enabled=true", *MONITORING)
        monitor, service = one(objects, "ServiceMonitor"), one(objects, "Service")
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert monitor["spec"]["endpoints"][0]["honorLabels"] is True

    def test_monitors_leave_our_labels_as_they_are(self, helm: Helm, everything: Path) -> None:
        monitor = one(helm.render("--values", everything, *MONITORING), "PodMonitor")
        assert monitor["spec"]["podMetricsEndpoints"][0]["honorLabels"] is True
        assert monitor["metadata"]["labels"]["release"] == "prometheus"

    def test_alerts_and_dashboards_are_what_lies_in_the_charts_files(
        self, helm: Helm, everything: Path, tmp_path: Path
    ) -> None:
        chart = tmp_path / "outrider"
        shutil.copytree(CHART, chart)
        shutil.rmtree(chart / "files" / "dashboards", ignore_errors=True)
        (chart / "files" / "alerts.yaml").unlink(missing_ok=True)
        arguments = ("--values", everything, *MONITORING)
        assert not {"PrometheusRule", "ConfigMap"} & kinds(helm.render(*arguments, chart=chart))

        rule = {"alert": "Down", "expr": "up == 0", "annotations": {"summary": "{{ $labels.pod }} is down"}}
        (chart / "files" / "alerts.yaml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [rule]}]}))
        board = {"title": "Fleet", "panels": [{"legendFormat": "{{service}}"}]}
        (chart / "files" / "dashboards").mkdir()
        (chart / "files" / "dashboards" / "fleet.json").write_text(json.dumps(board, indent=2))
        objects = helm.render(*arguments, chart=chart)
        assert one(objects, "PrometheusRule")["spec"]["groups"][0]["rules"] == [rule]
        shown = one(objects, "ConfigMap")
        assert json.loads(shown["data"]["fleet.json"]) == board
        assert shown["metadata"]["name"] == "outrider-dashboard-fleet"
        assert shown["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert shown["metadata"]["annotations"] == {"grafana_folder": "Outrider"}


class TestRunbooks:
    def addresses(self, helm: Helm, *arguments: str) -> list[str]:
        objects = helm.render("--set", "prometheusRule.enabled=true", *arguments, *MONITORING)
        (group,) = one(objects, "PrometheusRule")["spec"]["groups"]
        return [rule["annotations"]["runbook_url"] for rule in group["rules"]]

    def test_they_are_paths_in_the_source_by_default(self, helm: Helm) -> None:
        found = self.addresses(helm)
        assert len(found) > 10
        assert all((CHART.parents[1] / path).is_file() for path in found)

    @pytest.mark.parametrize("base", ["https://wiki.example/outrider", "https://wiki.example/outrider/"])
    def test_a_base_address_takes_the_folders_place(self, helm: Helm, base: str) -> None:
        pages = [Path(path).name for path in self.addresses(helm)]
        found = self.addresses(helm, "--set", f"prometheusRule.runbookBaseUrl={base}")
        assert found == [f"https://wiki.example/outrider/{page}" for page in pages]


class TestRights:
    def test_in_all_namespaces_one_role_has_all_rules(self, helm: Helm) -> None:
        rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
        deployed = list(yaml.safe_load_all((CHART.parents[1] / "deploy" / "rbac.yaml").read_text()))
        objects = helm.render("--set", "rbac.aggregate=false")
        role, binding = one(objects, "ClusterRole"), one(objects, "ClusterRoleBinding")
        assert role["rules"] == [*rules["namespaced"], *rules["cluster"]] == one(deployed, "ClusterRole")["rules"]
        assert binding["subjects"] == one(deployed, "ClusterRoleBinding")["subjects"]
        own = one(objects, "Role")
        assert own["rules"] == rules["own"] == one(deployed, "Role")["rules"]
        assert own["metadata"]["namespace"] == one(deployed, "Role")["metadata"]["namespace"] == "outrider-system"

    def test_in_named_namespaces_each_gets_a_role_and_the_cluster_is_only_read(self, helm: Helm) -> None:
        rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
        objects = helm.render("--set", "rbac.aggregate=false", "--set", "watchNamespaces={ml,research}")
        assert one(objects, "ClusterRole")["rules"] == [*rules["cluster"], *rules["named"]]
        roles = [each for each in objects if each["kind"] == "Role"]
        assert [each["metadata"]["namespace"] for each in roles] == ["outrider-system", "ml", "research"]
        assert all(each["rules"] == rules["namespaced"] for each in roles[1:])
        bindings = [each for each in objects if each["kind"] == "RoleBinding"]
        assert [each["metadata"]["namespace"] for each in bindings] == ["outrider-system", "ml", "research"]
        assert {each["subjects"][0]["namespace"] for each in bindings} == {"outrider-system"}
        assert environment(objects)["OUTRIDER_NAMESPACES"] == "ml,research"

    def test_rights_can_be_left_to_others(self, helm: Helm) -> None:
        objects = helm.render("--set", "rbac.create=false,rbac.aggregate=false,serviceAccount.create=false")
        kept = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"}
        assert not kept & kinds(objects)

    def test_users_who_may_view_or_edit_may_do_so_with_services(self, helm: Helm) -> None:
        roles = {each["metadata"]["name"]: each for each in helm.render() if each["kind"] == "ClusterRole"}
        for name, verb in (("outrider-view", "list"), ("outrider-edit", "patch")):
            labels = roles[name]["metadata"]["labels"]
            assert labels[f"rbac.authorization.k8s.io/aggregate-to-{name.removeprefix('outrider-')}"] == "true"
            assert verb in roles[name]["rules"][0]["verbs"]


class TestPod:
    def test_there_is_one_operator_unless_more_are_asked_for(self, helm: Helm) -> None:
        spec = one(helm.render(), "Deployment")["spec"]
        assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
        assert "topologySpreadConstraints" not in spec["template"]["spec"]

    def test_of_two_operators_an_upgrade_leaves_one_and_nodes_are_different(self, helm: Helm) -> None:
        spec = one(helm.render("--set", "replicas=2"), "Deployment")["spec"]
        assert spec["replicas"] == 2
        assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
        (spread,) = spec["template"]["spec"]["topologySpreadConstraints"]
        assert spread["labelSelector"]["matchLabels"] == spec["selector"]["matchLabels"]

    @pytest.mark.parametrize("name", ["outrider", "team-a-outrider"])
    def test_the_lease_and_the_right_to_it_bear_the_releases_name(self, helm: Helm, name: str) -> None:
        """Operators of two releases, which look after different namespaces, must not wait for each other."""
        objects = helm.render("--set", f"fullnameOverride={name}", "--set", "watchNamespaces={ml}")
        role = next(each for each in objects if each["kind"] == "Role" and each["metadata"]["name"] == f"{name}-lease")
        assert environment(objects)["OUTRIDER_LEADER_LEASE"] == name
        assert [rule.get("resourceNames") for rule in role["rules"]] == [[name], None]

    def test_it_gets_its_token_and_others_of_the_account_do_not(self, helm: Helm) -> None:
        objects = helm.render()
        assert one(objects, "ServiceAccount")["automountServiceAccountToken"] is False
        pod = one(objects, "Deployment")["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is True
        assert pod["serviceAccountName"] == one(objects, "ServiceAccount")["metadata"]["name"]

    def test_engines_open_their_admin_port_to_its_label(self, helm: Helm) -> None:
        from outrider.manifests.network_policy import OPERATOR

        labels = one(helm.render("--set", "fullnameOverride=x"), "Deployment")["spec"]["template"]["metadata"]["labels"]
        assert OPERATOR["matchLabels"].items() <= labels.items()

    def test_it_gets_more_time_to_end_than_it_takes(self, helm: Helm) -> None:
        import kopf

        from outrider import handlers

        settings = kopf.OperatorSettings()
        handlers._configure(settings)
        grace = one(helm.render(), "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert settings.process.ultimate_exiting_timeout is not None
        assert grace > settings.process.ultimate_exiting_timeout

    def test_probes_ask_the_port_that_the_operator_answers_on(self, helm: Helm) -> None:
        container = one(helm.render(), "Deployment")["spec"]["template"]["spec"]["containers"][0]
        (port,) = (each["containerPort"] for each in container["ports"] if each["name"] == "health")
        assert port == Settings.model_fields["health_port"].default
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"] == {"path": "/healthz", "port": "health"}

    def test_defaults_are_those_of_the_operator(self, helm: Helm) -> None:
        fields = Settings.model_fields
        found = environment(helm.render())
        stated = {variable(name): field.default for name, field in fields.items() if not field.is_required()}
        for name, value in found.items():
            if name in stated:
                assert yaml.safe_load(value) == stated[name], name
        assert Settings.model_fields["prometheus_url"].examples == [found["OUTRIDER_PROMETHEUS_URL"]]

    def test_every_value_reaches_the_operator_and_is_valid_there(
        self, helm: Helm, everything: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = environment(helm.render("--values", everything))
        for name, value in found.items():
            monkeypatch.setenv(name, value)
        settings = Settings()  # type: ignore[call-arg]
        known = {variable(name) for name in Settings.model_fields}
        assert set(found) <= known
        bound = {"OUTRIDER_BIND_ADDRESS", "OUTRIDER_HEALTH_PORT"}  # within the pod, and of no use to a user
        by_pod = {"OUTRIDER_OPERATOR_NAMESPACE", "OUTRIDER_POD_NAME"}
        other = {"OUTRIDER_PROMETHEUS_BEARER_TOKEN_FILE"} | by_pod  # see below for the first
        assert known - set(found) == bound | other
        assert settings.prometheus_headers == (("X-Scope-OrgID", "ml"), ("X-Team", "serving"))
        assert settings.auth_modes == ("basic", "tls")
        assert settings.paused

    def test_every_file_that_a_setting_names_is_mounted(self, helm: Helm, everything: Path) -> None:
        token = ("--set", "prometheus.bearerToken.secretName=t")
        for arguments in (("--values", everything), token):
            objects = helm.render(*arguments)
            pod = one(objects, "Deployment")["spec"]["template"]["spec"]
            mounts = {each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
            files = {value for name, value in environment(objects).items() if name.endswith("_FILE")}
            assert files
            assert {str(Path(file).parent) for file in files} == mounts - {"/tmp"}
            assert {each["name"] for each in pod["volumes"]} == {
                each["name"] for each in pod["containers"][0]["volumeMounts"]
            }

    def test_it_runs_as_the_image_does_but_for_what_can_be_written(self, helm: Helm) -> None:
        image = (CHART.parents[1] / "operator" / "Dockerfile").read_text()
        pod = one(helm.render(), "Deployment")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        user = pod["securityContext"]["runAsUser"]
        assert f"\nUSER {user}:{user}\n" in image
        assert f'ENTRYPOINT ["outrider"]\nCMD {json.dumps(container["args"])}' in image
        assert "\nEXPOSE " + " ".join(str(port["containerPort"]) for port in container["ports"]) + "\n" in image
        assert container["securityContext"]["readOnlyRootFilesystem"] is True

    def test_a_digest_wins_over_the_tag(self, helm: Helm) -> None:
        for value, image in (
            ("tag=edge", "ghcr.io/outrider-dev/operator:edge"),
            ("digest=sha256:" + "1" * 64, "ghcr.io/outrider-dev/operator:0.1.0@sha256:" + "1" * 64),
        ):
            pod = one(helm.render("--set", f"image.{value}"), "Deployment")["spec"]["template"]["spec"]
            assert pod["containers"][0]["image"] == image


class TestNetworkPolicy:
    @pytest.mark.parametrize(
        ("url", "port"),
        [
            ("http://prometheus-operated.monitoring:9090", 9090),
            ("https://store.example/prometheus", 443),
            ("http://store.example", 80),
            ("http://[fd00::1]:9091/x", 9091),
            ("http://[fd00::1]", 80),
        ],
    )
    def test_the_metrics_store_is_reached_on_its_port(self, helm: Helm, url: str, port: int) -> None:
        objects = helm.render("--set", "networkPolicy.enabled=true", "--set-string", f"prometheus.url={url}")
        rules = one(objects, "NetworkPolicy")["spec"]["egress"]
        assert [each["ports"] for each in rules][2] == [{"port": port}]

    def test_engines_are_reached_on_their_admin_port(self, helm: Helm) -> None:
        from outrider.engine.command_line import ADMIN_PORT
        from outrider.manifests.meta import COMPONENT_LABEL, MANAGED_BY_LABEL, MANAGER

        rules = one(helm.render("--set", "networkPolicy.enabled=true"), "NetworkPolicy")["spec"]["egress"]
        (rule,) = (each for each in rules if "to" in each)
        assert rule["ports"] == [{"port": ADMIN_PORT}]
        assert rule["to"][0]["podSelector"] == {"matchLabels": {MANAGED_BY_LABEL: MANAGER, COMPONENT_LABEL: "engine"}}


class TestRefusals:
    @pytest.mark.parametrize(
        ("value", "said"),
        [
            pytest.param("image.tags=x", "'tags' not allowed", id="an unknown key"),
            pytest.param("watchNamespace=ml", "'watchNamespace' not allowed", id="an unknown key at the top"),
            pytest.param("replicas=0", "/replicas", id="no operator"),
            pytest.param("prometheus.url=", "/prometheus/url", id="no store"),
            pytest.param("prometheus.url=prometheus:9090", "/prometheus/url", id="no scheme"),
            pytest.param("prometheus.url=http://u:p@store", "/prometheus/url", id="a password in the address"),
            pytest.param("control.periodSeconds=0", "/control/periodSeconds", id="too short"),
            pytest.param("control.leaseSeconds=1.5", "/control/leaseSeconds", id="no integer"),
            pytest.param("control.paused=perhaps", "/control/paused", id="no truth value"),
            pytest.param("logLevel=LOUD", "/logLevel", id="an unknown level"),
            pytest.param("image.digest=latest", "/image/digest", id="no digest"),
            pytest.param("keda.authModes={cookie}", "/keda/authModes/0", id="an unknown mode"),
            pytest.param("watchNamespaces={ML}", "/watchNamespaces/0", id="no name of a namespace"),
            pytest.param("terminationGracePeriodSeconds=5", "/terminationGracePeriodSeconds", id="no time to end"),
            pytest.param("prometheusRule.runbookBaseUrl=runbooks", "/prometheusRule/runbookBaseUrl", id="no address"),
            pytest.param("prometheus.headers.X=a\\,b", "/prometheus/headers/X", id="two headers in one"),
        ],
    )
    def test_the_schema_names_the_value(self, helm: Helm, value: str, said: str) -> None:
        done = helm.run("template", "outrider", CHART, "--set", value, check=False)
        assert done.returncode != 0
        assert said in done.stderr

    @pytest.mark.parametrize(
        ("value", "said"),
        [
            pytest.param(
                "prometheus.bearerToken.secretName=t,prometheus.basicAuth.username=u,prometheus.basicAuth.secretName=s",
                "a question has one Authorization; set one of them",
                id="two ways to show who one is",
            ),
            pytest.param(
                "prometheus.basicAuth.username=u", "username and secretName go together; set both", id="no password"
            ),
            pytest.param("keda.authModes={basic}", "set that too", id="modes of nothing"),
            pytest.param(
                "metrics.podMonitor.enabled=true,metrics.serviceMonitor.enabled=true", "enable one of them", id="twice"
            ),
            pytest.param(
                "metrics.serviceMonitor.enabled=true,metrics.service.enabled=false", "enable that too", id="no Service"
            ),
        ],
    )
    def test_values_that_do_not_go_together_are_refused_with_a_remedy(self, helm: Helm, value: str, said: str) -> None:
        done = helm.run("template", "outrider", CHART, "--set", value, check=False)
        assert done.returncode != 0
        assert said in done.stderr

    def test_a_parent_chart_may_share_values(self, helm: Helm) -> None:
        assert helm.render("--set", "global.region=eu")
