/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local.h - a worker and the other workers of its host: the stages local_reduce and local_broadcast.
 *
 * Workers of one host form a group. Each partition has a leader in it, who takes the contributions of the
 * others, sums them with an engine of its own (sum/sum.h), and alone speaks with the shard; or, if there is
 * no other group, is done. The transport between them lends memory where it can, so that a sum reads and
 * writes the tensors where they lie.
 *
 * [core] Everything here belongs to the worker's loop, except opening.
 */
#ifndef BPS_GROUP_LOCAL_H
#define BPS_GROUP_LOCAL_H

#include "base/heap.h"
#include "flow/step.h"
#include "flow/process_group.h"
#include "server/served.h"
#include "server/sum_frames.h"
#include "sum/exchange.h"
#include "wire/dialler.h"
#include "wire/lobby.h"
#include "wire/message.h"

/* What can take a partition at the nodes local_reduce and local_broadcast. */
extern const struct bps_step_ops *const bps_local_reduce_steps[], *const bps_local_broadcast_steps[];

/* Of a worker that is in a group of several; set before it connects. */
extern const struct bps_round_hooks bps_local_hooks;

/* Listens with the transport to the processes of this host, so that a group can form. */
bps_status bps_local_open(struct bps_worker *worker, struct bps_local **out, struct bps_report *report);
void bps_local_free(struct bps_local *local);
/* Where others can dial; "": nowhere. NULL is allowed, as in all that follows up to bps_local_drop(). */
const char *bps_local_address(const struct bps_local *local);
/* The book is there: forms the group. BPS_OK as well if this worker is alone in it. */
bps_status bps_local_connect(struct bps_local *local, struct bps_report *report);
/* True if there are others in the group. */
bool bps_local_has_peers(const struct bps_local *local);
/*
 * The types, a BPS_DTYPE_BIT each, of which a sum of a host crosses the network where there are several. Not integers:
 * the sum of an average may need more bits than they have, and the workers have not agreed beforehand what it is. Nor
 * those whose sums are rounded once: floating point of 8 bits, and without worker.round_on_host of 16.
 */
uint32_t bps_local_types(const struct bps_conf *conf);
/*
 * What a sum of this group that crosses the network was divided by; the shard multiplies it again. An average
 * of float16 has a sum that its type may not hold.
 */
uint32_t bps_local_divisor(const struct bps_operation *operation);
/* How many links to others it will have; with all of them open the worker has joined. */
uint32_t bps_local_links(const struct bps_local *local);
/* True if the group is the whole job, so that nothing needs the network. */
bool bps_local_is_final(const struct bps_local *local);
/* Adds who was late to what this worker sums for the whole job. */
void bps_local_lateness(const struct bps_local *local, struct bps_lateness *into);
/* Says goodbye to the others of the group. */
void bps_local_leave(struct bps_local *local);
/* Ends all links at once: from here on nothing of the operations' memory is used. */
void bps_local_drop(struct bps_local *local);

/* The network, or a stage behind it, has failed a round that this worker leads, as the FAILED header says. */
bps_status bps_local_fail(struct bps_local *local, const struct bps_header *header, const char *text);

/* ---- for the files of this part ---- */

/* A loan of a round that has failed, on its way back. */
struct bps_return {
    STAILQ_ENTRY(bps_return) entry;
    struct bps_loan *loan;
    uint8_t header[BPS_HEADER_BYTES];
};
STAILQ_HEAD(bps_return_list, bps_return);

/*
 * A failure that the shards are not told yet, because this worker has not declared the tensor; or a peer,
 * because its link is not open.
 */
struct bps_unsent {
    STAILQ_ENTRY(bps_unsent) entry;
    struct bps_header header;
    char *text;
};
STAILQ_HEAD(bps_unsent_list, bps_unsent);

/* Another worker of the group. */
struct bps_local_peer {
    struct bps_local *local;
    uint32_t rank;
    struct bps_link *link;        /* NULL: none yet, or none any more */
    struct bps_link dialled;      /* to those of lower rank, */
    struct bps_dialler dialler;   /* by this */
    struct bps_guest *guest;      /* of those of higher rank: it has the link */
    bool reached, left;           /* the link is open, or was; it leaves the job in order */
    struct bps_unsent_list words; /* for when it is open */
    struct bps_heap pushes;       /* tasks that it leads */
    struct bps_heap results;      /* slices for it */
    struct bps_return_list returns;
    struct bps_sum_cursor cursor; /* where a contribution of it goes */
    struct bps_header handing;    /* of the state that it hands over, */
    struct bps_writer handed;     /* and the bytes so far */
    struct bps_sink result;       /* that it sends */
    struct bps_task *task;
};

struct bps_local {
    struct bps_worker *worker;
    struct bps_instance *transport; /* the worker's */
    struct bps_lobby lobby;
    char address[128];
    struct bps_timer *ticker;
    uint32_t size, place; /* of the group; of this worker in it */
    uint32_t types;       /* bps_local_types() */
    bool ends;            /* no stage waits between a sum of this host and the network: it may be the result */
    bool final, dropped;
    bool exchanges;               /* small tensors: local_exchange.c */
    struct bps_local_peer *peer;  /* by place; the one at our own place is not used */
    struct bps_served all;        /* the engine of the group; NULL: there is none */
    struct bps_sum_config config; /* of that, and of those of: */
    struct bps_served_groups groups;
    uint32_t *group_of;           /* each worker's group, of the configuration; owned */
    struct bps_sum_cursor cursor; /* of our own contributions */
    bool working;                 /* a call to on_work() is coming */
    struct bps_unsent_list unsent;
    const struct bps_local_device_ops *device_ops;
    struct bps_devices *devices; /* theirs; NULL: not opened */
};

/* What a group asks and tells its devices, which may sum among themselves (devices.h). */
struct bps_local_device_ops {
    /* Sets it up, if the reducer of this worker forms groups. BPS_OK as well if there can be none. */
    bps_status (*open)(struct bps_local *local, struct bps_report *report);
    /* The link to a peer is open. */
    void (*reached)(struct bps_local_peer *peer);
    /* A peer leaves in order: no round will have all of them any more. */
    void (*left)(struct bps_local_peer *peer);
    /* This worker leaves; all its operations have ended. */
    void (*leave)(struct bps_devices *devices);
    /* The links are gone: nothing waits for another device any more. */
    void (*drop)(struct bps_devices *devices);
    void (*free)(struct bps_devices *devices);
    /* Ends what has waited for too long. */
    void (*tick)(struct bps_devices *devices, uint64_t now);
    /*
     * A round of a tensor has begun. True: the coordinator is asked, and bps_tasks_start() or a batch follows.
     * False: it goes through the host.
     */
    bool (*ask)(struct bps_operation *operation);
    /* This worker cannot contribute to a round, which the group will hear of on its way through the host. */
    void (*decline)(struct bps_operation *operation);
    /*
     * True if this worker has not heard yet which way a round goes. If it fails in the network before, another worker
     * of the host has declined: it goes through the host, where this worker is told when it comes to it.
     */
    bool (*asks)(struct bps_worker *worker, const struct bps_header *header);
    /* The network has failed a round that this worker leads. False: it was none of the devices. */
    bool (*network_failed)(struct bps_worker *worker, const struct bps_header *header, const char *text);
    /* READY to SEPARATE, from a peer. */
    bps_status (*message)(struct bps_local_peer *peer, const struct bps_header *header, struct bps_reader *payload);
};

/* A step that sends frames to others of the group. */
struct bps_local_step {
    struct bps_step_ops ops;
    /* A peer asks for the frame of a task that was put into the queue for it. */
    void (*frame)(struct bps_task *task, struct bps_local_peer *peer, struct bps_frame *out);
    /* That one is out. */
    void (*sent)(struct bps_task *task, struct bps_local_peer *peer);
};

static inline const struct bps_local_step *bps_local_step_of(const struct bps_task *task)
{
    return bps_container(bps_task_step(task), const struct bps_local_step, ops);
}

/* ---- check.c: for bps_check() ---- */
void bps_local_check(const struct bps_local *local);

/* ---- local_peer.c ---- */
/*
 * True if the group sums this tensor. In a job of several groups it does not sum unnamed tensors, whose type is not
 * agreed upon beforehand, and some types (bps_local_types()): each worker pushes these itself. Of all its partitions
 * alike: a probe.
 */
bool bps_local_sums(const struct bps_tensor_entry *tensor, uint32_t partition);
/* True if what the group sums of it is the result: all who take part are in the group. */
bool bps_local_ends(const struct bps_tensor_entry *tensor);
struct bps_local_peer *bps_local_leader_of(const struct bps_tensor_entry *tensor, uint32_t partition);
/* Ends a task that waits for its leader, who has left. */
void bps_local_leader_left(struct bps_task *task);
/* True if that is this worker. */
bool bps_local_leads(const struct bps_tensor_entry *tensor, uint32_t partition);
/* Keeps a failure for later. False: no memory, and the job has failed. */
bool bps_local_keep(struct bps_local *local, struct bps_unsent_list *list, const struct bps_header *header,
                    const char *text);
void bps_local_forget(struct bps_unsent_list *list);
struct bps_local_peer *bps_local_peer_of(struct bps_local *local, uint32_t rank);
/* True if this worker has a link to the one at that place: one of the two leads partitions. */
bool bps_local_meets(const struct bps_local *local, uint32_t place);
void bps_local_kick(struct bps_local_peer *peer);
/* Whether the result comes to memory of this worker. Who brings what all get may be written to as well. */
bool bps_local_gets(const struct bps_task *task);
/* The header of a PUSH of this worker's whole contribution. */
void bps_local_push_header(const struct bps_task *task, uint8_t flags, struct bps_header *out);
/* The peer will ask for a frame of the task. False: no memory, and the job has failed. */
bool bps_local_enqueue(struct bps_local_peer *peer, struct bps_task *task, size_t *place);
/* What the engine says of a round is for this peer. */
void bps_local_tell(struct bps_local_peer *peer, const struct bps_header *header, const char *text);
/* Its link is open now: it is told what was said before. */
void bps_local_tell_waiting(struct bps_local_peer *peer);

/* ---- local_link.c ---- */
extern const struct bps_link_handler bps_local_guests, bps_local_hosts;
/* Judges those who said hello before the book was there. */
void bps_local_admit_waiting(struct bps_local *local);
/* Frees what has the link of a peer that has dialled, which has ended. */
void bps_local_release_guest(struct bps_local_peer *peer);

/* ---- local_frame.c: what is sent to a peer, and what comes from it ---- */
bps_status bps_local_next(void *peer, struct bps_link *link, struct bps_frame *out);
void bps_local_sent(void *peer, struct bps_link *link, void *cookie);
bps_status bps_local_slice(void *peer, struct bps_link *link, const struct bps_header *header, struct bps_sink **sink);
bps_status bps_local_message(void *peer, struct bps_link *link, const struct bps_header *header,
                             struct bps_reader *payload);

/* ---- local_feedback.c ---- */
/* A round of the tensor begins: gives what this worker has saved of partitions that others lead to them. */
void bps_local_hand_over(struct bps_tensor_entry *tensor);
/* FEEDBACK, from a peer. */
bps_status bps_local_handed(struct bps_local_peer *peer, const struct bps_header *header, struct bps_reader *payload);

/* ---- local_group.c: process groups of workers of this host alone ---- */
/* The engine of a process group, or of all; NULL: nobody has announced it here. */
struct bps_sum *bps_local_engine(const struct bps_local *local, uint32_t group);
/* Before the first frame of a process group (NULL: of all) to a leader. False: no memory, and the job has failed. */
bool bps_local_announce(struct bps_local_peer *leader, struct bps_process_group *group);
/* GROUP, from a member. */
bps_status bps_local_announced(struct bps_local *local, uint32_t rank, const struct bps_header *header,
                               struct bps_reader *payload);
/* Something has happened to a worker. */
void bps_local_each_engine(const struct bps_local *local, void (*tell)(struct bps_sum *sum, uint32_t rank),
                           uint32_t rank);
/* Makes a pass in each engine that has one to make. False: none is left. */
bool bps_local_work(const struct bps_local *local);
/* Looks for rounds that wait too long, and for groups that have ended. */
void bps_local_look(struct bps_local *local, uint64_t now);

/* ---- local_lead.c: what a leader does ---- */
bps_status bps_local_lead(struct bps_local *local, struct bps_report *report);
bps_status bps_local_contribution(struct bps_local_peer *peer, const struct bps_header *header, struct bps_sink **sink);
/* The next result or loan for this peer. BPS_AGAIN: there is none. */
bps_status bps_local_next_result(struct bps_local_peer *peer, struct bps_frame *out);
/* False: the cookie is not of such a frame. */
bool bps_local_result_sent(struct bps_local_peer *peer, void *cookie);

/* ---- local_lend.c: what the others do ---- */
extern const struct bps_local_step bps_local_lend;
bps_status bps_local_result(struct bps_local_peer *peer, const struct bps_header *header, struct bps_sink **sink);

/* ---- local_exchange.c: small tensors, which nobody leads ---- */
extern const struct bps_local_step bps_local_exchange;
/* We cannot go on with a round: the others are told, by way of the leader. */
void bps_local_exchange_poison(struct bps_local *local, const struct bps_notice *poison);
/* Event: the sum is where the task wants it. */
void bps_local_exchanged(void *owner, void *task);

#endif
