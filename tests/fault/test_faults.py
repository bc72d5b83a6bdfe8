#!/usr/bin/env python3
"""What every n-th failing call showed once (tests/proof/part_faults.py walks all of them): after each fault the command failed with one
line or left the complete result, and the same command again leaves what an undisturbed one does."""
import os
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", x) for x in ("", "proof")]
import part_faults  # noqa: E402
import t  # noqa: E402
from t import SANITIZED, test  # noqa: E402

STEP = 5 if SANITIZED else 1


def all_hold(command, *rules):
    """Rules are OPERATION, first and last n (0: of all calls), persistent, error."""
    if command not in bench.reference:
        bench.refer(command)
    tried = reached = 0
    for operation, first, last, persistent, error in rules:
        for n in range(first, (last or bench.calls[command][operation]) + 1, STEP):
            wrong = part_faults.attempt(bench, command, operation, n, persistent, error)
            assert wrong in ("", "unreached"), "%s %s:%d%s=%s: %s" % (command, operation, n, "+" * persistent, error, wrong)
            tried += 1
            reached += not wrong
    assert 2 * reached > tried, (command, tried, reached)


@test
def a_vocabulary_that_cannot_be_read_is_not_left_out():
    all_hold("convert", ("read", 1, 0, 0, "EIO"), ("fstat", 15, 0, 0, "ESTALE"))
    all_hold("convert-gguf", ("read", 18, 0, 1, "EIO"), ("alloc", 300, 310, 0, "ENOMEM"))


@test
def files_that_cannot_be_read_are_not_moved_away_as_damaged():
    all_hold("resume", ("open", 1, 12, 0, "EMFILE"), ("read", 1, 20, 0, "EIO"), ("read", 3, 6, 1, "EIO"), ("fstat", 12, 24, 0, "EIO"))


@test
def a_run_whose_log_cannot_be_examined_once_goes_on():
    all_hold("resume", ("fstat", 57, 0, 0, "EIO"), ("stat", 20, 40, 0, "ESTALE"))


@test
def a_start_that_fails_leaves_no_run():
    all_hold("train", ("open", 1, 6, 0, "EMFILE"), ("opendir", 1, 2, 1, "EIO"), ("mkdir", 1, 3, 1, "ENOSPC"), ("alloc", 1, 40, 0, "ENOMEM"))


@test
def a_torn_record_is_cut_or_the_run_does_not_begin():
    all_hold("resume", ("ftruncate", 1, 0, 0, "EIO"), ("ftruncate", 1, 0, 1, "EDQUOT"), ("pread", 1, 3, 0, "EIO"))


@test
def what_a_calibration_could_not_remove_the_next_one_removes():
    all_hold("calibrate", ("unlink", 1, 0, 1, "EIO"), ("opendir", 1, 0, 1, "EMFILE"), ("rmdir", 1, 0, 0, "EIO"))


@test
def a_run_is_done_although_old_checkpoints_cannot_be_removed():
    all_hold("train", ("unlink", 9, 0, 1, "EIO"), ("rmdir", 1, 0, 1, "EIO"), ("readdir", 50, 60, 1, "EIO"))


@test
def a_checkpoint_for_which_there_is_no_memory_is_an_error_and_one_line():
    all_hold("train", ("alloc", 7660, 7680, 1, "ENOMEM"), ("alloc", 8120, 8130, 1, "ENOMEM"))


@test
def a_sweep_whose_leases_cannot_be_listed_ends():
    all_hold("sweep", ("opendir", 3, 5, 1, "EMFILE"), ("readdir", 4, 6, 1, "EIO"))


@test
def half_of_every_transfer_is_enough():
    for command in ("train", "convert", "export", "get") if part_faults.shutil.which("curl") else ("train", "convert", "export"):
        all_hold(command, ("write", 1, 1, 1, "SHORT"), ("read", 1, 1, 1, "SHORT"))
    all_hold("resume", ("pread", 1, 1, 1, "SHORT"))


bench = part_faults.Bench()
try:
    bench.prepare()
    t.main()
finally:
    bench.close()
