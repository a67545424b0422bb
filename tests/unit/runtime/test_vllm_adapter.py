"""What the plugin does to vLLM, on a small one with its names; `tests/engine` compares them with the real one."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from outrider_runtime import vllm_adapter
from tests.unit.runtime import fake_vllm
from tests.unit.runtime.fake_vllm import CEILING, PIECEWISE, Descriptor, FakeVllm, Output, config, decode, graph

LOGGER = "vllm.outrider"


def attached(vllm: FakeVllm, **changes: Any) -> Any:
    """A scheduler that was built after the plugin came."""
    vllm_adapter.install_engine_half()
    return vllm.scheduler(config(**changes))


def step(scheduler: Any, output: Output, answers: dict[int, list[str]] | None = None) -> dict[int, Any]:
    """What an engine core does in one step."""
    scheduler.next = output
    scheduled = scheduler.schedule()
    assert scheduled is output
    return scheduler.update_from_output(output, {0: ["token"]} if answers is None else answers)  # type: ignore[no-any-return]


class TestFault:
    @pytest.mark.parametrize("version", ["0.32.0", "0.33.0", "0.33.1.dev4"])
    def test_a_known_version_with_all_names_has_none(self, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
        FakeVllm(monkeypatch, version)
        assert vllm_adapter.fault() == ""

    @pytest.mark.parametrize("version", ["0.31.9", "0.34.0", "0.330.0", "1.0.33.", "dev"])
    def test_an_unknown_version_is_left_alone(self, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
        FakeVllm(monkeypatch, version)
        assert vllm_adapter.fault() == (
            f"vLLM {version} was never tried with this plugin, which knows 0.32.x and 0.33.x"
        )

    @pytest.mark.parametrize(
        ("module", "name"), [(module, name) for module, names in vllm_adapter.NAMES.items() for name in names]
    )
    def test_a_missing_name_is_told(self, vllm: FakeVllm, module: str, name: str) -> None:
        if name == "Scheduler.__init__":  # every class has one
            name = "Scheduler"
        vllm.lose(module, name)
        assert vllm_adapter.fault().startswith(f"vLLM 0.33.0 has no {module}.{name}")

    @pytest.mark.parametrize("module", vllm_adapter.NAMES)
    def test_a_missing_module_is_told(self, vllm: FakeVllm, module: str) -> None:
        vllm.lose(module)
        assert vllm_adapter.fault().startswith(f"vLLM 0.33.0 has no module {module}: ")

    def test_a_vllm_without_a_version_is_left_alone(self, vllm: FakeVllm) -> None:
        vllm.lose("vllm.version")
        assert vllm_adapter.fault().startswith("the version of vLLM cannot be read: ")


class TestEngineHalf:
    def test_a_scheduler_gets_its_half(self, vllm: FakeVllm) -> None:
        scheduler = attached(vllm)
        facts = scheduler.outrider.facts
        assert facts.vllm_version == "0.33.0"
        assert (facts.max_num_seqs, facts.max_speculative_tokens, facts.start_table) == (4, 3, (0, 1, 3, 3))
        assert facts.capture_sizes == (4, 8, 16)
        assert (facts.model_runner, facts.attention_backend) == ("V2", "FLASH_ATTN")
        assert facts.cudagraph_mode == "FULL_AND_PIECEWISE"
        assert facts.not_controllable_because == ""

    def test_what_a_configuration_leaves_to_vllm_is_told_as_such(self, vllm: FakeVllm) -> None:
        vllm_adapter.install_engine_half()
        bare = config()
        bare.compilation_config = SimpleNamespace(cudagraph_capture_sizes=None, cudagraph_mode=None)
        bare.attention_config.backend = None
        bare.use_v2_model_runner = False
        facts = vllm.scheduler(bare).outrider.facts
        assert (facts.capture_sizes, facts.cudagraph_mode) == ((), "NONE")
        assert (facts.model_runner, facts.attention_backend) == ("V1", "auto")

    def test_schedules_reach_the_table_that_the_scheduler_reads(self, vllm: FakeVllm) -> None:
        scheduler = attached(vllm)
        assert scheduler.dynamic_sd_lookup == [0, 0, 1, 3, 3]
        core = vllm.core(scheduler)
        rows = [[1, 2, 3], [3, 4, 1]]
        status, body = core.outrider_call("put", [{"generation": 1, "schedule": rows}])
        assert (status, body["generation"]) == (200, 1)
        assert scheduler.dynamic_sd_lookup == [0, 3, 3, 1, 1]

    def test_each_step_begins_with_a_look_at_the_lease(self, vllm: FakeVllm) -> None:
        scheduler = attached(vllm)
        scheduler.outrider.put({"generation": 1, "schedule": [[1, 4, 1]]})
        scheduler.outrider.keeper.lease_ends_s = 0.0
        seen = []
        scheduler.outrider.keeper._apply = lambda schedule: seen.append(schedule)
        step(scheduler, decode(1))
        assert [str(schedule) for schedule in seen] == ["1-1:0 2-2:1 3-4:3"]

    def test_two_schedulers_have_halves_of_their_own(self, vllm: FakeVllm) -> None:
        first, second = attached(vllm), vllm.scheduler(config())
        step(first, decode(1))
        assert first.outrider.meter.steps_by_k == {CEILING: 1}
        assert second.outrider.meter.steps_by_k == {}

    def test_installing_twice_measures_once(self, vllm: FakeVllm) -> None:
        vllm_adapter.install_engine_half()
        init = vllm.scheduler.__init__
        scheduler = attached(vllm)
        assert vllm.scheduler.__init__ is init
        step(scheduler, decode(1))
        assert scheduler.outrider.meter.steps_by_k == {CEILING: 1}

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            pytest.param({"table": False, "speculates": False}, "does not speculate", id="no drafter"),
            pytest.param({"table": False, "data_parallel_size": 2}, "under data parallelism", id="several ranks"),
            pytest.param({"table": False}, "has no schedule", id="no table"),
        ],
    )
    def test_an_engine_whose_k_is_fixed_says_why_and_is_measured(
        self, vllm: FakeVllm, caplog: pytest.LogCaptureFixture, changes: dict[str, Any], reason: str
    ) -> None:
        with caplog.at_level(logging.WARNING, LOGGER):
            scheduler = attached(vllm, **changes)
        assert reason in caplog.text
        assert scheduler.dynamic_sd_lookup is None
        status, body = vllm.core(scheduler).outrider_call("put", [{}])
        assert (status, reason in body["reason"]) == (503, True)
        step(scheduler, decode(1, k=0))
        assert scheduler.outrider.meter.steps_by_k == {0: 1}

    def test_a_scheduler_that_cannot_be_attached_to_works_as_before(
        self, vllm: FakeVllm, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OUTRIDER_INITIAL_SCHEDULE", "[[1, 4, 2]]")  # 2 has no graphs
        with caplog.at_level(logging.WARNING, LOGGER):
            scheduler = attached(vllm)
        assert "K stays as vLLM was started: row 1-4:2" in caplog.text
        assert scheduler.outrider is None
        assert scheduler.dynamic_sd_lookup == [0, 0, 1, 3, 3]
        assert step(scheduler, decode(1))[0].outputs == ["token"]
        status, body = vllm.core(scheduler).outrider_call("get", [])
        assert (status, body["reason"]) == (503, "the plugin could not attach to the scheduler")

    def test_a_builder_that_refuses_leaves_the_table(self, vllm: FakeVllm) -> None:
        def refuse(*_: object) -> list[int]:
            raise ValueError("another vLLM")

        vllm.replace(fake_vllm.TABLES, "build_dynamic_sd_schedule_lookup", refuse)
        scheduler = attached(vllm)
        assert scheduler.outrider is None
        assert scheduler.dynamic_sd_lookup == [0, 0, 1, 3, 3]

    def test_an_engine_core_built_before_the_plugin_came_says_so(self, vllm: FakeVllm) -> None:
        scheduler = vllm.scheduler(config())
        vllm_adapter.install_engine_half()
        assert vllm.core(scheduler).outrider_call("get", [])[0] == 503

    def test_answers_without_a_status_are_fine(self, vllm: FakeVllm) -> None:
        status, body = vllm.core(attached(vllm)).outrider_call("state", [])
        assert (status, set(body)) == (200, {"silent_s"})


class TestMeasuring:
    def cells(self, scheduler: Any) -> list[list[Any]]:
        return [row[:4] for row in scheduler.outrider.meter.as_rows()]

    def test_steps_are_measured_by_requests_k_and_kind(self, vllm: FakeVllm) -> None:
        scheduler = attached(vllm)
        for _ in range(3):
            step(scheduler, decode(3, k=1))
        assert self.cells(scheduler) == [[4, 1, False, 2]]  # the first one belongs to no K

    @pytest.mark.parametrize(
        ("output", "mixed"),
        [
            pytest.param(decode(2), False, id="verification alone"),
            pytest.param(Output({"a": 4, "b": 1}, CEILING, num_output_tokens=[9, 9]), False, id="one without drafts"),
            pytest.param(
                Output({"a": 4, "b": 2}, CEILING, scheduled_new_reqs=["b"], num_output_tokens=[9]),
                True,
                id="a new request, however short",
            ),
            pytest.param(Output({"a": 4, "b": 500}, CEILING, num_output_tokens=[9, 9]), True, id="more than drafts"),
            pytest.param(
                Output({"a": 4, "b": 3}, CEILING, num_output_tokens=[9, 0]), True, id="the end of a long prompt"
            ),
            pytest.param(
                Output({"a": 4, "b": 4}, CEILING, num_output_tokens=[9, 9], resumed_req_ids={"b"}),
                True,
                id="a request that had been put aside",
            ),
        ],
    )
    def test_a_step_that_computes_a_prompt_is_mixed(self, vllm: FakeVllm, output: Output, mixed: bool) -> None:
        scheduler = attached(vllm)
        step(scheduler, decode(2))
        step(scheduler, output)
        assert self.cells(scheduler) == [[2, CEILING, mixed, 1]]

    def test_a_step_without_requests_is_none(self, vllm: FakeVllm) -> None:
        scheduler = attached(vllm)
        step(scheduler, Output({}, CEILING), {})
        assert scheduler.outrider.meter.steps_by_k == {}

    def test_steps_under_way_together_are_told_apart(self, vllm: FakeVllm) -> None:
        scheduler = attached(vllm)
        first, second = decode(1), decode(3)
        for output in (first, second):
            scheduler.next = output
            scheduler.schedule()
        for output in (first, second):
            scheduler.update_from_output(output, {0: ["token"]})
        assert self.cells(scheduler) == [[4, CEILING, False, 1]]
        assert scheduler.outrider.meter.steps_by_k == {CEILING: 2}

    def test_only_answers_with_tokens_count_as_tokens(self, vllm: FakeVllm) -> None:
        scheduler = attached(vllm)
        meter = scheduler.outrider.meter
        started_s = meter.last_token_s
        step(scheduler, decode(1), {0: [], 1: []})
        assert meter.last_token_s == started_s
        step(scheduler, decode(1), {0: [], 1: ["token"]})
        assert meter.last_token_s == meter.last_step_s

    def test_when_no_work_is_left_the_next_step_starts_its_own_time(self, vllm: FakeVllm) -> None:
        scheduler = attached(vllm)
        scheduler.unfinished = False
        step(scheduler, decode(1))
        assert scheduler.outrider.meter._last_end_s is None

    def test_measuring_can_be_switched_off(self, vllm: FakeVllm) -> None:
        scheduler = attached(vllm)
        vllm.core(scheduler).outrider_call("measure", [False])
        assert step(scheduler, decode(1))[0].outputs == ["token"]
        assert scheduler.outrider.meter.steps_by_k == {}
        assert not scheduler.outrider.meter._under_way  # or they would pile up

    def test_arguments_of_vllm_pass(self, vllm: FakeVllm) -> None:
        scheduler = attached(vllm)
        scheduler.next = decode(1)
        assert scheduler.schedule(throttle=True) is scheduler.schedule(True) is scheduler.next

    @pytest.mark.parametrize(
        ("output", "answers"),
        [
            pytest.param(SimpleNamespace(num_scheduled_tokens={"a": 1}), {0: ["token"]}, id="a strange output"),
            pytest.param(decode(1), {0: None}, id="strange results"),
            pytest.param(SimpleNamespace(), {0: None}, id="both"),
        ],
    )
    def test_a_step_that_cannot_be_measured_is_served_all_the_same_and_no_other_is_measured(
        self, vllm: FakeVllm, caplog: pytest.LogCaptureFixture, output: Any, answers: Any
    ) -> None:
        vllm.scheduler.update_from_output = lambda self, output, answers: answers  # no objects with outputs
        scheduler = attached(vllm)
        with caplog.at_level(logging.WARNING, LOGGER):
            assert step(scheduler, output, answers) is answers
            assert step(scheduler, output, answers) is answers
        assert scheduler.outrider.meter.enabled is False
        assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["Outrider"]

    def test_an_engine_that_is_not_measured_still_shows_that_it_works(self, vllm: FakeVllm) -> None:
        scheduler = attached(vllm)
        scheduler.outrider.meter.last_step_s = before_s = 0.0
        scheduler.outrider.measure(False)
        step(scheduler, decode(1))
        assert scheduler.outrider.meter.last_step_s > before_s


class TestGraphGuard:
    """`graph(FULL, 4)` was captured for four requests."""

    def drafted(
        self, vllm: FakeVllm, full: Descriptor, mixed: Descriptor = PIECEWISE, *, padded_requests: int, v2: bool = True
    ) -> tuple[Any, Any]:
        """The graphs of a drafter's first pass and of those after it, in a worker that the plugin was told of."""
        vllm_adapter.install_graph_guard()
        assert vllm.worker(v2).init_device() == "initialised"
        drafter = vllm.drafter(vllm.manager(full, mixed), vllm.manager(full))
        batch = SimpleNamespace(num_reqs=2, num_reqs_after_padding=padded_requests)
        return drafter.propose(batch, "sampled")  # type: ignore[no-any-return]

    def test_a_full_graph_of_another_number_of_requests_is_replaced(self, vllm: FakeVllm) -> None:
        first, _ = self.drafted(vllm, graph("FULL", 4), padded_requests=2)
        assert first == PIECEWISE

    def test_where_another_full_graph_takes_its_place_none_is_used(self, vllm: FakeVllm) -> None:
        """With graphs for any mix of query lengths, what is found without a query length may be full as well."""
        first, _ = self.drafted(vllm, graph("FULL", 4), graph("FULL", 8), padded_requests=2)
        assert (first.cg_mode.name, first.num_reqs) == ("NONE", 2)

    def test_a_full_graph_of_the_same_number_is_kept(self, vllm: FakeVllm) -> None:
        first, _ = self.drafted(vllm, graph("FULL", 4), padded_requests=4)
        assert first == graph("FULL", 4)

    @pytest.mark.parametrize("found", [graph("PIECEWISE", 4), graph("NONE", 4)], ids=lambda found: found.cg_mode.name)
    def test_other_graphs_are_kept(self, vllm: FakeVllm, found: Descriptor) -> None:
        first, _ = self.drafted(vllm, found, padded_requests=2)
        assert first == found

    def test_other_managers_are_untouched(self, vllm: FakeVllm) -> None:
        """The passes after the first have metadata of their own."""
        _, later = self.drafted(vllm, graph("FULL", 4), padded_requests=2)
        assert later == graph("FULL", 4)

    def test_each_batch_has_its_own_number(self, vllm: FakeVllm) -> None:
        self.drafted(vllm, graph("FULL", 4), padded_requests=4)
        drafter = vllm.drafter(vllm.manager(graph("FULL", 4)), None)
        padded = [4, 2, 4]
        graphs = [
            drafter.propose(SimpleNamespace(num_reqs=2, num_reqs_after_padding=requests), "sampled")[0].cg_mode.name
            for requests in padded
        ]
        assert graphs == ["FULL", "PIECEWISE", "FULL"]

    def test_a_drafter_without_graphs_drafts(self, vllm: FakeVllm) -> None:
        self.drafted(vllm, PIECEWISE, padded_requests=2)
        drafter = vllm.drafter(None, None)
        assert drafter.propose(SimpleNamespace(num_reqs=2, num_reqs_after_padding=2), "sampled") == (None, None)

    def test_0_switches_it_off(self, vllm: FakeVllm, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OUTRIDER_GRAPH_GUARD", "0")
        first, _ = self.drafted(vllm, graph("FULL", 4), padded_requests=2)
        assert first == graph("FULL", 4)

    def test_the_other_runner_needs_none(self, vllm: FakeVllm) -> None:
        first, _ = self.drafted(vllm, graph("FULL", 4), padded_requests=2, v2=False)
        assert first == graph("FULL", 4)

    def test_its_modules_are_left_alone_until_a_worker_knows_its_device(self, vllm: FakeVllm) -> None:
        propose = vllm.drafter.propose
        vllm_adapter.install_graph_guard()
        assert vllm.drafter.propose is propose

    def test_it_is_set_once_a_process(self, vllm: FakeVllm) -> None:
        self.drafted(vllm, PIECEWISE, padded_requests=2)
        before = vllm.worker.init_device, vllm.drafter.propose, vllm.manager.dispatch
        self.drafted(vllm, PIECEWISE, padded_requests=2)
        assert before == (vllm.worker.init_device, vllm.drafter.propose, vllm.manager.dispatch)

    @pytest.mark.parametrize(
        ("module", "name"), [(fake_vllm.SPECULATOR, "TargetDependentARSpeculator.propose"), (fake_vllm.GRAPHS, None)]
    )
    def test_a_vllm_without_the_drafter_starts_its_workers(self, vllm: FakeVllm, module: str, name: str | None) -> None:
        vllm.lose(module, name)
        vllm_adapter.install_graph_guard()
        assert vllm.worker().init_device() == "initialised"

    def test_a_guard_that_fails_leaves_the_worker(self, vllm: FakeVllm, caplog: pytest.LogCaptureFixture) -> None:
        vllm_adapter.install_graph_guard()
        worker = vllm.worker()
        del worker.vllm_config
        with caplog.at_level(logging.WARNING, LOGGER):
            assert worker.init_device() == "initialised"
        assert "no guard for the drafter's CUDA graphs" in caplog.text


class TestFrontDoor:
    """What the front door asks of vLLM."""

    async def test_a_call_reaches_the_engine_core(self) -> None:
        class Core:
            async def call_utility_async(self, *call: object) -> tuple[object, ...]:
                return 200, {"call": call}

        client = SimpleNamespace(engine_core=Core())
        answer = await vllm_adapter.call(client, "warm", 3)
        assert answer == (200, {"call": ("outrider_call", "warm", [3])})

    async def test_a_prompt_is_answered_in_full_and_as_cheaply_as_can_be(self, vllm: FakeVllm) -> None:
        asked: list[Any] = []

        class Client:
            async def generate(self, *request: Any) -> Any:
                asked.extend(request)
                for tokens in ([7], [8, 9]):
                    yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens)])

        vllm.replace(fake_vllm.SAMPLING, "RequestOutputKind", SimpleNamespace(DELTA="delta"))  # type: ignore[arg-type]
        arrived = [tokens async for tokens in vllm_adapter.generate(Client(), [1, 2], 3, "outrider-0")]
        assert arrived == [1, 2]
        prompt, sampling, request_id = asked
        assert (prompt, request_id) == ({"prompt_token_ids": [1, 2]}, "outrider-0")
        assert vars(sampling) == {
            "max_tokens": 3,
            "temperature": 0.0,
            "ignore_eos": True,
            "detokenize": False,
            "output_kind": "delta",
        }

    def test_limits_are_those_of_the_configuration(self) -> None:
        model = SimpleNamespace(max_model_len=4096, get_vocab_size=lambda: 32000)
        client = SimpleNamespace(
            vllm_config=SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=8), model_config=model)
        )
        assert vllm_adapter.limits(client) == (8, 4096, 32000)
