# SPDX-License-Identifier: Apache-2.0
"""The words of the command `testbed`, and what they mean."""

import argparse
import os

from . import units
from .bed import SWITCH
from .job import GRACE

DESCRIPTION = """Hosts made of network namespaces, with links of a given rate, and jobs on them.
Root is needed. 'testbed VERB --help' tells about each verb."""
USAGE = "%(prog)s [OPTION]... -- COMMAND..."

# ---- kinds of words


def numbers(text):
    """ "1,1,3" """
    words = text.split(",")
    if not all(word.isdigit() for word in words):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers such as 1,1,3")
    return [int(word) for word in words]


def host(text):
    """ "2", "h2" or "switch" """
    digits = text[1:] if text.startswith("h") else text
    if text != "switch" and not digits.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not a host; say its number, or switch")
    return SWITCH if text == "switch" else int(digits)


def setting(text):
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"'{text}' is not KEY=VALUE")
    return text


def slow(text):
    """(host, rate) of "1=100mbit" """
    number, _, rate = text.partition("=")
    if not number.isdigit() or not rate:
        raise argparse.ArgumentTypeError(f"'{text}' is not HOST=RATE, such as 1=100mbit")
    return int(number), rate


def seconds(text):
    try:
        return units.seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(error) from None


# ---- what all verbs with hosts of their own share, and all that use a bed which is there


def links():
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--rate", default="1gbit", help="of each link: 100mbit, none, or one for each host (1gbit)"
    )
    common.add_argument("--links", type=int, default=1, metavar="N", help="of each host, in subnets of their own (1)")
    common.add_argument("--buffer", default=units.BUFFER, help="of each port: 20ms, 256k (%(default)s)")
    return common


def network():
    common = argparse.ArgumentParser(add_help=False, parents=[links()])
    common.add_argument("--hosts", type=int, metavar="N", help="number of hosts (as many as are needed)")
    return common


def other():
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--bed", default=os.environ.get("TESTBED"), help="which one ($TESTBED, or the only one)"
    )
    return common


# ---- verbs


def add_run(verbs):
    run = verbs.add_parser("run", parents=[network()], usage=USAGE, help="make hosts, run a job on them")
    run.set_defaults(takes_command=True)
    run.add_argument(
        "-n", "--workers", type=numbers, default=[1, 1], metavar="A,B", help="ranks per host (1,1)"
    )
    run.add_argument(
        "-s", "--servers", type=int, default=0, metavar="K", help="each on a host of its own (0)"
    )
    run.add_argument("--beside", action="store_true", help="and a server process on each host with workers")
    run.add_argument("--server-hosts", type=numbers, metavar="A,B", help="the servers are on these instead")
    run.add_argument("--scheduler-host", type=host, default=SWITCH, metavar="A", help="(switch)")
    run.add_argument(
        "--set", type=setting, action="append", default=[], metavar="KEY=VALUE", help="for all parts"
    )
    run.add_argument("-t", "--timeout", type=seconds, help="end the job after this time, such as 90 or 5min")
    run.add_argument(
        "--grace", type=seconds, default=GRACE, help="for the others when a part has failed (10)"
    )
    run.add_argument("--stat", action="store_true", help="print bytes and drops of each link at the end")


def add_bench(verbs):
    bench = verbs.add_parser(
        "bench",
        parents=[links()],
        usage=USAGE,
        help="run byteps bench push_pull --json, or train --beside ddp --json, on hosts of their own",
    )
    bench.set_defaults(takes_command=True)
    bench.add_argument("-n", "--workers", type=int, default=2, metavar="N", help="each on a host (2)")
    bench.add_argument("-s", "--servers", type=int, default=0, metavar="K", help="likewise (0)")
    bench.add_argument(
        "--set", type=setting, action="append", default=[], metavar="KEY=VALUE", help="for all parts"
    )
    bench.add_argument(
        "--slow", type=slow, action="append", default=[], metavar="HOST=RATE", help="a link that differs"
    )
    bench.add_argument("--json", action="store_true", help="for programs")


def add_other_makers(verbs):
    within = verbs.add_parser(
        "with",
        parents=[network()],
        usage=USAGE,
        help="make hosts, run a command that may use the verbs below",
    )
    within.set_defaults(takes_command=True)
    rate = verbs.add_parser("rate", parents=[network()], help="make hosts, measure TCP streams between them")
    rate.add_argument("--seconds", type=seconds, default=3.0, help="of each measurement (3)")
    rate.add_argument("--congestion", default="cubic", help="congestion control (%(default)s)")


def add_users(verbs):
    execute = verbs.add_parser(
        "exec",
        parents=[other()],
        usage="%(prog)s [--bed BED] HOST -- COMMAND...",
        help="run a command on a host",
    )
    execute.set_defaults(takes_command=True)
    cut = verbs.add_parser("cut", parents=[other()], help="cut the link of a host")
    cut.add_argument("--unplug", action="store_true", help="so that both ends see it")
    restore = verbs.add_parser("restore", parents=[other()], help="make it whole again")
    shape = verbs.add_parser("shape", parents=[other()], help="give the link of a host another rate")
    for verb in (execute, cut, restore, shape):
        verb.add_argument("host", type=host, metavar="HOST")
    shape.add_argument("rate", metavar="RATE")
    shape.add_argument("--buffer", default=units.BUFFER)
    verbs.add_parser("stat", parents=[other()], help="bytes and drops of each host's link")


def add_keepers(verbs):
    verbs.add_parser("list", help="show the beds that there are")
    clean = verbs.add_parser("clean", help="clear away beds that have lost their owner")
    clean.add_argument("names", nargs="*", metavar="BED", help="these, whether they have an owner or not")
    clean.add_argument("--all", action="store_true", help="all of them, whether they have an owner or not")
    warden = verbs.add_parser("warden")  # for the test bed's own use
    warden.add_argument("name")


def parse(words):
    """The words after "--" are the command, as they are."""
    words, command = (
        (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    )
    parser = argparse.ArgumentParser(prog="testbed", description=DESCRIPTION)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for add in (add_run, add_bench, add_other_makers, add_users, add_keepers):
        add(verbs)
    args = parser.parse_args(words)
    takes = getattr(args, "takes_command", False)
    if bool(command) != takes:
        parser.error(f"{args.verb} " + ("needs '-- COMMAND...' at its end" if takes else "takes no command"))
    args.command = command
    return args
