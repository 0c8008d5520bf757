"""Stages are timed, and every event reaches the listener in order."""

from __future__ import annotations

import threading

import pytest

from aotpipe.build.events import Event, Recorder, Remark, StageFinished, StageStarted, own_peak_rss_bytes


def test_a_stage_is_told_twice_and_kept_once():
    heard: list[Event] = []
    recorder = Recorder(heard.append)
    with recorder.stage("compile", "iree-vmvx") as running:
        running.cached = True
        running.peak_rss_bytes = 7
    started, finished = heard
    assert started == StageStarted(stage="compile", target="iree-vmvx")
    assert isinstance(finished, StageFinished)
    assert (finished.cached, finished.failed, finished.peak_rss_bytes) == (True, False, 7)
    assert recorder.finished == [finished]


def test_a_stage_that_raises_is_told_as_failed():
    recorder = Recorder()
    with pytest.raises(ValueError, match="no"), recorder.stage("export"):
        raise ValueError("no")
    assert recorder.finished[0].failed
    assert recorder.finished[0].peak_rss_bytes >= 2**20


def test_a_remark_is_said_once():
    heard: list[Event] = []
    recorder = Recorder(heard.append)
    recorder.remark("full")
    recorder.remark("full")
    assert heard == [Remark(message="full")]


def test_events_of_threads_do_not_interleave():
    inside = 0

    def listener(event: Event) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        inside -= 1

    recorder = Recorder(listener)

    def work() -> None:
        for _ in range(200):
            with recorder.stage("compile"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recorder.finished) == 800


def test_own_peak_rss_is_in_bytes():
    assert 2**20 < own_peak_rss_bytes() < 2**40
