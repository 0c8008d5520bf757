"""The messages are those that Triton's published client has."""

from __future__ import annotations

import pytest
from tritonclient.grpc import service_pb2

from aotpipe.runtime.serve.grpc_messages import MESSAGES


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_each_field_has_the_published_number_and_type(name: str) -> None:
    published = service_pb2.DESCRIPTOR.message_types_by_name[name.partition(".")[0]]
    if "." in name:
        published = published.nested_types_by_name[name.partition(".")[2]]
    fields = {field.name: field for field in published.fields}
    for field in MESSAGES[name].DESCRIPTOR.fields:
        want = fields[field.name]
        assert (field.number, field.type, field.is_repeated) == (want.number, want.type, want.is_repeated)
        of = [each.message_type and each.message_type.full_name for each in (field, want)]
        assert of[0] == of[1]
        assert bool(field.containing_oneof) == bool(want.containing_oneof)


def test_what_one_writes_the_other_reads() -> None:
    ours = MESSAGES["ModelInferRequest"](
        model_name="m",
        parameters={"sequence_id": {"int64_param": 7}},
        inputs=[{"name": "x", "datatype": "FP32", "shape": [2], "contents": {"fp32_contents": [1, 2]}}],
        raw_input_contents=[b"ab"],
    )
    theirs = service_pb2.ModelInferRequest.FromString(ours.SerializeToString())
    assert theirs.parameters["sequence_id"].int64_param == 7
    assert list(theirs.inputs[0].contents.fp32_contents) == [1, 2]
    assert MESSAGES["ModelInferRequest"].FromString(theirs.SerializeToString()) == ours
