"""What an earlier stream has published counts for a day only if it was of the same batch table."""

from dataclasses import replace

from pipelines.ledger.certifications import certified, history
from pipelines.publishing.published_days import record_settled
from pipelines.publishing.settled import Settled
from pipelines.publishing.unsent_days import UnsentDays, unsent
from tests.support.certified_days import certify
from tests.support.lakes import Lake
from tests.support.nights import ONE, on, stream
from tests.support.published import checkpoint_of_query


def test_a_day_that_the_topic_has_of_a_batch_table_that_was_replaced_may_be_there_in_part(lake: Lake) -> None:
    lake.ingest([on(1, 1), on(2, 2)])
    stream(lake)
    certify(lake, ONE)
    state = certified(lake.pipeline)
    assert state is not None
    checkpoint_of_query(lake, "own")

    as_certified = Settled(state.version, (ONE,), history(lake.pipeline)[-1].batch_commit)
    record_settled(lake.pipeline, "own", 0, replace(as_certified, left=(ONE,)), "topic")
    assert unsent(lake.pipeline, "topic") == UnsentDays(never=(ONE,))
    # It was certified after the stream had been started, and before its first micro-batch.
    record_settled(lake.pipeline, "own", 0, as_certified, "topic")
    assert unsent(lake.pipeline, "topic") == UnsentDays()
    # What went to another topic is not on this one.
    record_settled(lake.pipeline, "own", 0, Settled(), "topic")
    record_settled(lake.pipeline, "own", 3, as_certified, "another")
    assert unsent(lake.pipeline, "another") == UnsentDays()
    assert unsent(lake.pipeline, "topic") == UnsentDays(never=(ONE,))
    record_settled(lake.pipeline, "earlier", 2, as_certified, "topic")
    assert unsent(lake.pipeline, "topic") == UnsentDays()
    # It had gone on with builds that a backup of the batch table did not have.
    for lost in (Settled(state.version + 9, (ONE,), "another"), Settled(state.version, (ONE,), "another")):
        record_settled(lake.pipeline, "earlier", 2, lost, "topic")
        assert unsent(lake.pipeline, "topic") == UnsentDays(partly=(ONE,))
