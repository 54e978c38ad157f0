# SPDX-License-Identifier: Apache-2.0
"""What gdb tells about a process of a job that does not go on: the stack of each thread; the operations and the queues
of its worker; the open rounds of its shards. Loaded by gdb itself, see stacks.py.

Nothing here may be relied on to be there: a process may be anywhere, and may be no process of ours at all.
"""

import gdb

OPERATIONS = 10
ROUNDS = 20
"""So many are shown in detail."""


def linked(head, entry):
    """The elements of a TAILQ."""
    item = head["tqh_first"]
    while item:
        yield item.dereference()
        item = item[entry]["tqe_next"]


def words(struct, *names):
    return ", ".join(f"{name} {struct[name]}" for name in names)


def text(pointer):
    return pointer.string(errors="replace") if pointer else "-"


def show_task(task):
    print(f"      task {words(task, 'partition', 'state', 'failed', 'refused')}")
    way = task["way"]
    if way and int(task["step"]) < int(way["length"]):
        step = way["step"][int(task["step"])]
        name = text(step["ops"]["name"])
        print(f"      step {int(task['step'])} of {int(way['length'])}: {name}")
        if name == "push":
            push = step["context"].cast(gdb.lookup_type("struct bps_push").pointer()).dereference()
            print(f"      slices {words(push, 'sent', 'answered', 'outstanding')}")


def show_operations(worker):
    for n, operation in enumerate(linked(worker["operations"], "entry")):
        tensor_type = gdb.lookup_type("struct bps_tensor_entry")
        offset = next(field.bitpos // 8 for field in tensor_type.fields() if field.name == "operation")
        at = int(operation.address) - offset
        tensor = gdb.Value(at).cast(tensor_type.pointer()).dereference()
        if n == OPERATIONS:
            print("    and more")
            break
        about = f"{words(tensor, 'id', 'round', 'tasks')}; {words(operation, 'phase', 'left')}"
        print(f"    {text(tensor['named']['name'])}: {about}")
        idle = gdb.parse_and_eval("(int)BPS_TASK_IDLE")
        for i in range(int(tensor["tasks"])):
            if int(tensor["task"][i]["state"]) != int(idle):
                show_task(tensor["task"][i])


def show_queues(worker):
    if not worker["shards"]:
        return
    shards = worker["shards"].dereference()
    for i in range(int(shards["remotes"])):
        remote = shards["remote"][i]
        credit = remote["credit"]
        print(f"    shard {i}: queued {remote['queue']['count']}, {words(remote, 'starved', 'told')}")
        print(f"      credit: {words(credit, 'limit', 'unanswered')}")
        if shards["window"]["shard"]:
            print(f"      window: {words(shards['window']['shard'][i], 'waits', 'place', 'priority', 'blocked_by')}")


def show_worker(worker):
    life = words(worker, "phase", "failure", "in_flight", "open_links", "opened_links")
    print(f"  worker: {words(worker['job'], 'rank', 'size')}, {life}")
    show_operations(worker)
    show_queues(worker)


def show_rounds(engine):
    shown = 0
    key = engine["keys"][0]
    while key:
        base = key["rounds"]
        while base and shown < ROUNDS:
            current = base.cast(gdb.lookup_type("struct bps_round").pointer())
            about = words(current, "slices", "complete", "unfinished", "joined")
            print(f"    key {int(key['id']):#x}: round {int(base['id']['round'])}: {about}; {text(base['failure'])}")
            base, shown = base["next"], shown + 1
        following = key["hh"]["next"]
        key = following.cast(key.type) if following else None


def show_server(server):
    for i in range(int(server["shards"])):
        shard = server["shard"][i]
        print(f"  shard {i}: epoch {shard['epoch']}, workers {shard['workers']}")
        if shard["all"]["sum"]:
            show_rounds(shard["all"]["sum"])
        group = shard["groups"]["by_id"]
        while group:
            print(f"    process group {int(group['group']):#x}, {group['members']} members")
            show_rounds(group["sum"])
            following = group["hh"]["next"]
            group = following.cast(group.type) if following else None


def worker_here():
    symbol = gdb.lookup_static_symbol("current")
    pointer = symbol.value() if symbol is not None else None
    return pointer.dereference() if pointer else None


def server_here():
    """Of a process that is a server."""
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        frame = gdb.newest_frame()
        while frame is not None:
            if frame.name() == "server_run_once":
                pointer = frame.read_var("p")["server"]
                return pointer.dereference() if pointer else None
            frame = frame.older()
    return None


def attempt(what, *args):
    try:
        return what(*args)
    except (gdb.error, RuntimeError, ValueError) as error:
        print(f"  {what.__name__}: {error}")
        return None


gdb.execute("set print pretty off")
gdb.execute("set print frame-arguments scalars")
gdb.execute("thread apply all backtrace 40")
worker = attempt(worker_here)
if worker is not None:
    attempt(show_worker, worker)
hosted = worker["server"].dereference() if worker is not None and worker["server"] else attempt(server_here)
if hosted is not None:
    attempt(show_server, hosted)
