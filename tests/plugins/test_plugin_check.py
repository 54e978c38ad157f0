# SPDX-License-Identifier: Apache-2.0
"""`byteps plugin check`: a plugin without faults passes, and each fault is found by the test that is there for it."""

import json
import os
import re
import platform
import shutil
import subprocess
import tempfile
import unittest

import modules

# Fault of stage_faulty.c: (test that finds it, words of what it tells)
STAGE = {
    "OPEN_LEAKS": ("open and close, many", "leaks bytes of memory"),
    "OPEN_LEAKS_DESCRIPTOR": ("open and close, many", "leaks descriptors"),
    "OPEN_LEAKS_THREAD": ("open and close, many", "leaks"),
    "OPEN_LEAKS_WATCH": ("open and close, many", "leaks bytes of memory"),
    "OPEN_LEAKS_POLLER": ("open and close, many", "leaks bytes of memory"),
    "OPEN_LEAKS_WITHOUT_MEMORY": ("open without memory", "leaks bytes of memory"),
    "OPEN_TRUSTS_MALLOC": ("open without memory", "open whose allocation 1 fails: ended by signal 11"),
    "OPEN_RETURNS_ONE": ("open and close of two", "open returns 1; allowed are BPS_OK and BPS_ERR_*"),
    "OPEN_SAYS_NOTHING": ("open and close of two", "without a text in the report"),
    "OPEN_EXITS": ("open and close of two", "ended the process with status 0"),
    "OPEN_HANGS": ("open and close of two", "did not end within 1 s"),
    "OPEN_PRINTS": ("open and close of two", 'prints to standard output, which belongs to the application: "hello'),
    "OPTION_CRASHES": ("options", "open with level = 9: ended by signal 6"),
    "OPTION_WITHOUT_HELP": ("options", "option 'level': it has no help"),
    "SECOND_INSTANCE": ("open and close of two", "close of the first of two instances: ended by signal 6"),
    "DESCRIBE_IGNORES_ROOM": ("describe", "with room for 1 bytes: the text is not terminated"),
    "DESCRIBE_TWO_LINES": ("describe", "is not one line"),
    "QUERY_NO_OPS": ("query", "its field `ops` is 0"),
    "QUERY_UNKNOWN_TYPE": ("query", "its field `dtypes` is 0x80000001; allowed are the bits of 0xfff"),
    "QUERY_EXECUTOR": ("query", "its field `executor` is 7"),
    "QUERY_UNSET": ("query", "does not set every field"),
    "BIND_RETURNS_SEVEN": ("bind", "bind, sum of float32, 1000 elements: it returns 7"),
    "BIND_LEAKS": ("bind", "leaks bytes of memory"),
    "RUN_BEYOND": ("all of dst", "touches memory 1 bytes beyond the end of dst, which has 4 bytes"),
    "RUN_BEFORE": ("all of dst", "touches memory 4 bytes before dst"),
    "RUN_READS_BEYOND": ("all of dst", "touches memory 1 bytes beyond the end of src"),
    "RUN_SHORT": ("all of dst", "it has not written byte 0 of dst"),
    "RUN_WRITES_SRC": ("all of dst", "writes to byte 0 of src, which it may only read"),
    "RUN_FAILS": ("all of dst", "without a text in the report"),
    "RUN_NOT_IN_PLACE": ("in place", "its result differs from that with another dst"),
    "RUN_LEAKS": ("left behind", "leaks bytes of memory"),
    "RUN_SHARES": ("threads", "results differ from those of one thread"),
    "RUN_TRAPS_NAN": ("NaN", "ended by signal 6"),
    "RUN_RETURNS_THREE": ("all of dst", "it returns 3; allowed are BPS_OK, BPS_INPROGRESS and BPS_ERR_*"),
    "RUN_LATER_IN_POOL": ("all of dst", "only a stage with BPS_EXECUTOR_IO may"),
    "DONE_AND_OK": ("done and cancel", "it has called done, and returns 0"),
    "DONE_TWICE": ("done and cancel", "it calls done twice for a task"),
    "DONE_NEVER": ("done and cancel", "not called done within 1 s"),
    "DONE_POSITIVE": ("done and cancel", "it calls done with status 3"),
    "ROUND_FIRST_ONLY": ("run_all", "it has not written all of dst"),
    "ROUND_BY_ORDER": ("run_all", "the result depends on the order of the tasks"),
    "ROUND_LATER": ("run_all", "it returns 1; allowed are BPS_OK and BPS_ERR_*"),
    "CANCEL_FORGETS": ("done and cancel", "after cancel of some tasks"),
}

COMPRESSOR = {
    "BOUND_NOTHING": ("bound", "it codes neither"),
    "BOUND_SHRINKS": ("bound", "it returns 408, and 804 for one element less"),
    "ENCODE_OVER_BOUND": ("within their memory", "it returns 9; allowed are 1 to 8, its bound"),
    "ENCODE_NO_BYTES": ("within their memory", "it returns 0; allowed are 1 to 8"),
    "ENCODE_BEYOND": ("within their memory", "encode, float32, 1 elements: touches memory 1 bytes beyond"),
    "ENCODE_READS_BEYOND": ("within their memory", "touches memory 1 bytes beyond the end of src"),
    "ENCODE_WRITES_SRC": ("within their memory", "writes to byte 0 of src, which it may only read"),
    "ENCODE_DIFFERS": ("same bytes", "to different bytes"),
    "ENCODE_LEAVES_OUT": ("same bytes", "leaves some unwritten"),
    "ENCODE_SHARES": ("threads", "results differ from those of one thread"),
    "ENCODE_LEAKS": ("left behind", "leaks bytes of memory"),
    "ENCODE_HIDES_NAN": ("stay visible", "an overflow must stay visible"),
    "ENCODE_NEEDS_ELEMENTS": ("no elements", "encode, float32, 0 elements: ended by signal 6"),
    "DECODE_BEYOND": ("within their memory", "decode, float32, 1 elements: touches memory 1 bytes beyond"),
    "DECODE_READS_BEYOND": ("within their memory", "touches memory 1 bytes beyond the end of src"),
    "DECODE_SHORT": ("within their memory", "it has not written byte 0 of dst"),
    "DECODE_REFUSES": ("within their memory", "for data that encode produced"),
    "DECODE_DIVIDES": ("zeros", "where all were 0"),
    "DECODE_OVERFLOWS": ("within their memory", "of elements that are all finite"),
    "DECODE_DIVERGES": ("error feedback", "are not finite any more"),
    "DECODE_TRUSTS_NUMBER": ("mutated", "touches memory"),
    "DECODE_TRUSTS_LENGTH": ("cut", "touches memory"),
    "DECODE_OTHER_STATUS": ("cut", "it returns -1 for foreign bytes"),
    "ADD_SETS": ("is added", "the old element plus that of decode"),
}

REDUCER = {
    "KERNELS_NONE": ("which there are", "it has none at all"),
    "KERNELS_RETURNS_TWO": ("which there are", "kernels, sum of float32: it returns 2"),
    "KERNELS_NULL": ("which there are", "`finish` and `reduce` is NULL"),
    "KERNELS_ACCUMULATOR": ("which there are", "its `accumulator` is float64; expected float32"),
    "KERNELS_FLOAT_AVERAGE": ("which there are", "average of float32"),
    "KERNELS_ANY_OPERATION": ("which there are", "average of float32"),
    "KERNELS_COMPENSATED": ("counts of sources", "with an error of at most"),
    "FIRST_WITHOUT_SCALE": ("counts of sources", "first, sum of float32, 301 elements, 1 sources"),
    "FOLD_SHORT": ("counts of elements", "fold, sum of float32, 1 elements, 3 sources"),
    "FOLD_SUBTRACTS": ("counts of elements", "fold, sum of float32, 1 elements, 3 sources"),
    "FINISH_TWICE": ("alignments", "finish, sum of float32, 333 elements"),
    "REDUCE_BEYOND": ("alignments", "it has written byte 1332 of dst, which has 1332"),
    "REDUCE_READS_BEYOND": ("alignments", "touches memory 1 bytes beyond the end of src"),
    "REDUCE_WRITES_SRC": ("counts of elements", "writes to byte 0 of src, which it may only read"),
    "REDUCE_ONE_SOURCE": ("counts of elements", "reduce, sum of float32, 1 elements, 3 sources"),
    "REDUCE_NOT_IN_PLACE": ("alignments", "reduce, sum of float32"),
    "REDUCE_SCALES": ("counts of sources", "reduce, sum of float32, 301 elements, 2 sources"),
    "REDUCE_DIFFERS": ("counts of elements", "dst: element 200 of"),
    "REDUCE_BY_PLACE": ("cut anywhere", "dst, reduced in pieces: element"),
    "REDUCE_SHARES": ("threads", "results differ from those of one thread"),
    "REDUCE_ALIGNED": ("alignments", "2 sources, not in place: ended by signal 6"),
    "SPECIAL_FLUSHES": ("special values", "reduce, sum of float32, pairs of special values"),
    "AVERAGE_WRAPS": ("beyond the type", "average: element 0 of 1"),
    "AVERAGE_TRUNCATES": ("beyond the type", "average: element 0 of 1 is 0; expected 0xffffffff"),
}
if platform.machine() == "x86_64":
    REDUCER["REDUCE_ROUNDS_ALIKE"] = ("settings", "reduce, sum of float32: ended by signal 8")

DEVICE = {
    "MARK_NULL": ("marks", "mark returns BPS_OK without a mark"),
    "MARK_ANY_DEVICE": ("marks", "device -1, which does not exist: it returns 0; expected BPS_ERR_INVALID"),
    "MARK_SAYS_NOTHING": ("marks", "without a text in the report"),
    "MARK_COPIES_EARLY": (
        "devices: copies",
        "a mark of copies behind 24 copies to the device: reached is called before",
    ),
    "FOLLOW_IGNORES": (
        "devices: copies",
        "follows that of copies behind 24 copies to the device: reached is called before",
    ),
    "AWAIT_AT_ONCE": ("marks", "reached is called from within the function that has begun it"),
    "AWAIT_TWICE": ("marks", "reached is called twice"),
    "AWAIT_NEVER": ("marks", "12 are never reached or done"),
    "AWAIT_POSITIVE": ("marks", "reached is called with status 4"),
    "RELEASE_REACHES": ("marks", "reached is called twice"),
    "COPY_AT_ONCE": ("devices: copies", "done of a copy is called from within the function that has begun it"),
    "COPY_TWICE": ("devices: copies", "done of a copy is called twice"),
    "COPY_NEVER": ("devices: copies", "of 1 marks, copies and reductions, 1 are never reached or done"),
    "COPY_EARLY": ("devices: copies", "done of a copy is called before the 1 bytes are there"),
    "COPY_SHORT": ("devices: copies", "done of a copy is called before the 1 bytes are there"),
    "COPY_BEYOND": ("devices: copies", "touches memory 1 bytes beyond the end of to"),
    "COPY_WRITES_FROM": ("devices: copies", "writes to byte 0 of from, which it may only read"),
    "COPY_SWAPS": ("devices: copies", "copy to the device is done before the"),
    "COPY_RETURNS_ONE": ("devices: copies", "copy returns 1"),
    "CAN_REDUCE_DIFFERS": ("reductions", "does not return the same each time"),
    "REDUCE_AT_ONCE": ("reductions", "done of a reduction is called from within the function that has begun it"),
    "REDUCE_ONE_SOURCE": ("reductions", "reduce, sum of float32, 2 sources, with scales: dst: element"),
    "REDUCE_WITHOUT_SCALES": ("reductions", "reduce, sum of float32, 2 sources, with scales: dst: element"),
    "REDUCE_WITHOUT_DIVISOR": ("reductions", "reduce, sum of float32, 2 sources, with scales: dst: element"),
    "CLOSE_FORGETS": ("devices: close", "are not there: close waits for what is under way"),
    "CLOSE_TELLS": ("devices: close", "done of a copy is called from within close"),
}

TRANSPORT = {
    "QUERY_NO_LANES": ("query", "its field `lanes` is 0; allowed are 1 to 64"),
    "QUERY_DIFFERS": ("query", "not return the same each time"),
    "LISTEN_SAYS_NOTHING": ("with a key", "has not written the address"),
    "LISTEN_SHARES": ("listen", "it returns 0; expected BPS_ERR_BUSY"),
    "LISTEN_OTHER_STATUS": ("listen", "expected BPS_ERR_BUSY"),
    "LOCAL_HOST_SAYS_NOTHING": ("listen", "local_host: the text is not terminated"),
    "DIAL_SAYS_NOTHING": ("nobody listens", "without a text in the report"),
    "DIAL_CLOSES_AT_ONCE": ("nobody listens", "closed is called from within dial"),
    "DIAL_IN_VAIN_IS_OK": ("nobody listens", "closed is called with status 0; expected is an error"),
    "ACCEPT_KEEPS_REFUSED": ("refused", "no progress: the end that has dialled"),
    "DIAL_CONNECTS_AT_ONCE": ("with a key", "connected is called from within dial"),
    "DIAL_WITHOUT_CHANNEL": ("with a key", "returns BPS_OK without a channel"),
    "ACCEPT_WITHOUT_PEER": ("with a key", "without the address of the peer"),
    "CONNECTED_NEVER": ("with a key", "header is called before connected, at the end that has dialled"),
    "CONNECTED_TWICE": ("with a key", "connected is called twice"),
    "NEXT_TOO_EARLY": ("with a key", "next is called before connected"),
    "NEXT_LOSES_KICK": ("many channels", "no progress: the end that has"),
    "NEXT_SWAPS": ("with a key", "the header of frame 0 is not what was sent: it says frame 1"),
    "SENT_TWICE": ("with a key", "sent is called with a cookie of no frame that is under way"),
    "SENT_NEVER": ("with a key", "`sent` was called for 0"),
    "SENT_EARLY": ("all sizes", "not what was sent"),
    "SENT_LOSES_COOKIE": ("with a key", "sent is called with a cookie of no frame"),
    "HEADER_CHANGED": ("with a key", "the header of frame 0 is not what was sent"),
    "HEADER_LOST": ("all sizes", "is not what was sent"),
    "PAYLOAD_CHANGED": ("with a key", "are not what was sent"),
    "PLACE_BEYOND": ("many channels", "written beyond the"),
    "PLACE_OFFSET": ("with a key", "place is called for"),
    "TAKE_FORGETS_KEPT": ("many channels", "not what was sent"),
    "TAKE_ELSEWHERE": ("with a key", "take is called with an address that place has not lent"),
    "PLACE_IGNORES_LESS": ("placed and taken", "bytes where place has lent"),
    "OPEN_LATE": ("places and regions", "open is called after place"),
    "OPEN_TWICE": ("places and regions", "open is called after"),
    "PLACED_TWICE": ("places and regions", "ticket of no place that is open"),
    "PLACED_EARLY": ("places and regions", "is not what was sent in the place that open has lent"),
    "PLACED_NEVER": ("places and regions", "open is called while 16 places are open"),
    "DROP_TELLS": ("drop from", "closed is called after drop"),
    "DROP_ASKS": ("drop from", "next is called after drop"),
    "DROP_READS": ("drop from", "of a header, which it may no longer use"),
    "DROP_WRITES": ("drop from", "of memory that open has lent, which it may no longer use"),
    "DROP_ENDS_OTHERS": ("drop from", "'another one was dropped'"),
    "FINISH_LOSES": ("finish from", "closed without asking `next` for"),
    "FINISH_CUTS": ("finish: what is left", "it is closed when `next` has given"),
    "FINISH_ASKS_AGAIN": ("finish: what is left", "is it asked after its last BPS_AGAIN?"),
    "FINISH_NEVER_CLOSES": ("with a key", "no progress: the end that has dialled: finishing"),
    "CLOSED_WITHIN_FINISH": ("with a key", "closed is called from within finish"),
    "CLOSED_TWICE": ("with a key", "closed is called after closed"),
    "CLOSED_SAYS_NOTHING": ("with a key", "closed is called without a text"),
    "CLOSED_POSITIVE": ("with a key", "closed is called with status 4"),
    "HEADER_OTHER_STATUS": ("header: refused", "closed is called with -5"),
    "HEADER_IGNORES_STATUS": ("header: refused", "no progress: the end that has accepted: connected"),
    "HEADER_CHANGED_LATE": ("random", "of 3000: the header of frame"),
    "STRANGER_ENDS_OTHERS": ("strangers", "and 'of a stranger'"),
    "STRANGER_ENDS_PROCESS": ("strangers", "bytes of a stranger, random ones: ended by signal 6"),
    "KEY_KEPT": ("with a key", "of a key, which it may no longer use"),
    "PROCESS_SHARES": ("two processes: frames", "the end that has accepted, in the other process"),
    "KILLED_IS_OK": ("two processes: killed", "closed is called with status 0; expected is an error"),
    "KILLED_NEVER_CLOSES": ("two processes: killed", "no progress: the end that has dialled: connected"),
    "STOPPED_ASKS": ("two processes: stopped", "`next` has given 256 MiB since then"),
    "CHANNEL_LEAKS": ("nothing is left behind", "leaks bytes of memory"),
    "CHANNEL_LEAKS_DESCRIPTOR": ("nothing is left behind", "leaks descriptors"),
    "HUNDRED_CRASH": ("a hundred at once", "of 100 at once: ended by signal 11"),
    "FINISHED_IS_IO": ("with a key", "expected 0 (success), as this end was finished"),
    "FINISHED_THERE_IS_LOST": ("with a key", "as the other end was finished"),
    "PROCESS_FINISHED_IS_IO": ("two processes: frames", "status -5 after finish; expected BPS_OK"),
    "PROCESS_FINISHED_THERE_IS_LOST": ("two processes: frames", "when the other end was finished; expected BPS_ERR_IO"),
    "REFUSED_IS_OK": ("dial: refused", "closed is called with status 0; expected BPS_ERR_IO"),
    "FRAME_WITHOUT_SIZE": ("with a key", "`size` of the frame for `next` is 0"),
    "LOAN_WITHOUT_SIZE": ("loans", "`size` of a loan is 0"),
    "LOAN_OTHER_BYTES": ("loans", "bytes, its frame"),
    "LOAN_HALF_MAPPED": ("loans", "of `data` and `answer` of a loan one is NULL"),
    "LOAN_AFTER_PLACE": ("loans", "lend is called after place or take"),
    "LOAN_READS_WRONG": ("loans", "that are lent, is not what was sent"),
    "LOAN_WRITES_WRONG": ("loans", "is not what was written"),
    "LOAN_WRITES_NOTHING": ("loans", "is not what was written"),
    "LOAN_WRITES_AT_START": ("loans", "is not what was written"),
    "LOAN_SENT_BEFORE": ("loans", "sent is called with a cookie of no frame that is under way"),
    "LOAN_SENT_NEVER": ("loans", "no progress: the end that has dialled"),
    "LOAN_SENT_TWICE": ("loans", "sent is called with a cookie of no frame that is under way"),
    "LOAN_RETURN_LOST": ("loans", "sent was not called just before the header of the frame that returns the loan"),
    "LOAN_CHANGED": ("loans", "that are lent, is not what was sent"),
    "LOAN_CHANGED_AT_END": ("finish from", "which is lent, has changed"),
    "LOAN_OF_DROPPED": ("drop from", "of a payload, which it may no longer use"),
}

# Told only when the limit has passed; all else, however busy the machine is, before that.
WAITS = "no progress|within 1 s|was called for 0|are never reached"


class PluginCheck(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def check(self, *words):
        return subprocess.run(["byteps", "plugin", "check", *words], capture_output=True, text=True)

    def build(self, source, fault):
        kind = source.partition("_")[0]
        path = os.path.join(self.dir, f"{kind}_faulty.so")
        return modules.build(os.path.join(modules.HERE, source), path, {"FAULT": fault}, ["-lpthread", "-lm"])

    def find_faults(self, source, faults):
        for fault, (test, words) in faults.items():
            with self.subTest(fault=fault):
                limit = "1" if re.search(WAITS, words) else "10"
                result = self.check(self.build(source, fault), "--only", test, "--limit", limit)
                self.assertEqual(result.returncode, 1, result)
                self.assertIn("not ok", result.stdout)
                self.assertIn(words, result.stdout)

    def pass_all(self, path):
        result = self.check(path)
        self.assertEqual(result.returncode, 0, result)
        self.assertNotIn("not ok", result.stdout)
        return result.stdout

    def test_stage(self):
        self.pass_all(self.build("stage_faulty.c", "NONE"))
        self.pass_all(self.build("stage_faulty.c", "ROUND_NONE"))
        self.find_faults("stage_faulty.c", STAGE)

    def test_compressor(self):
        self.pass_all(self.build("compressor_faulty.c", "NONE"))
        self.find_faults("compressor_faulty.c", COMPRESSOR)

    def test_reducer(self):
        told = self.pass_all(self.build("reducer_faulty.c", "NONE"))
        self.assertIn("no sum of float64", told)
        self.find_faults("reducer_faulty.c", REDUCER)

    def test_device(self):
        self.pass_all(self.build("reducer_device_faulty.c", "NONE"))
        self.find_faults("reducer_device_faulty.c", DEVICE)

    def test_transport(self):
        self.pass_all(self.build("transport_faulty.c", "NONE"))
        self.find_faults("transport_faulty.c", TRANSPORT)

    def test_examples(self):
        for name in ("clip", "nanguard"):
            self.pass_all(modules.build_example(name, self.dir))
        self.pass_all(modules.build(os.path.join(modules.HERE, "stage_later.c"), f"{self.dir}/stage_later.so"))

    def test_json(self):
        found = json.loads(self.check(self.build("stage_faulty.c", "QUERY_NO_OPS"), "--json").stdout)
        self.assertEqual((found["kind"], found["name"], found["failed"] > 0), ("stage", "faulty", True))
        query = next(test for test in found["tests"] if test["test"] == "query")
        self.assertEqual(query["result"], "failed")
        self.assertIn("`ops` is 0", query["text"])

    def test_wrong_words(self):
        for words, text in (
            (("nothing_like_it",), "there is no plugin 'nothing_like_it'"),
            (("./nothing.so",), "./nothing.so: cannot be read"),
            ((modules.HERE + "/modules.py",), "modules.py: "),
            (("cpu", "--limit", "0"), "--limit takes seconds"),
            (("cpu", "--only", "no such test"), "no test of a reducer has 'no such test' in its name"),
            (("cpu", "--set", "level"), "--set takes OPTION=VALUE"),
            ((), "check takes the name or the file of one plugin"),
        ):
            with self.subTest(words=words):
                result = self.check(*words)
                self.assertGreater(result.returncode, 0)
                self.assertIn(text, result.stderr)


if __name__ == "__main__":
    unittest.main()
