"""A running member against its own OpenAPI document: what that allows and forbids is answered as it says."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.server_process import ServerProcess, free_port
from znoded.admin.api.schema import DOCUMENT_BYTES

#: They never end, and have tests of their own.
STREAMS = ["watch", "election_observe"]
OPERATIONS = [
    found.ok()
    for found in schemathesis.openapi.from_dict(json.loads(DOCUMENT_BYTES))
    .exclude(operation_id=STREAMS)
    .get_all_operations()
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    toml = f'[api]\nlisten = "tcp:{port}:interface=127.0.0.1"\n'
    with ServerProcess(tmp_path_factory.mktemp("schemathesis"), toml):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def session(url: str) -> str:
    request = urllib.request.Request(f"{url}/v1/session/create", b"{}", {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(json.load(answer)["session"])


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.path)
def test_the_answers_are_those_of_the_document(url: str, session: str, operation: Any, mode: GenerationMode) -> None:
    is_valid = mode is GenerationMode.POSITIVE
    if not is_valid and operation.method == "get":
        pytest.skip("it has nothing that could be wrong")

    @settings(
        max_examples=15,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        phases=[Phase.generate],
    )
    @given(operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        if is_valid and isinstance(case.body, dict):
            if operation.path.endswith(("acquire", "campaign")):
                case.body["timeout_ms"] = 10  # nobody waits for what never comes
            if "session" in case.body and "close" not in operation.path:
                case.body["session"] = session
        response = case.call_and_validate(base_url=url, timeout=10, excluded_checks=[positive_data_acceptance])
        if is_valid and response.status_code == 400:
            # What the document cannot say: which paths and ACLs the tree takes, and which revisions there are.
            error = response.json()["error"]
            assert error["code"] == "future_revision" or "path" in error["message"] or "ACL" in error["message"]

    check()
