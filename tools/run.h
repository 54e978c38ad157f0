/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - the processes of a job and their end: what `byteps run` and `byteps launch` share.
 *
 * Three processes look after a job. The guard is the one the user has started: it passes signals on and returns
 * the exit status. Its child, a second guard, does the same for the manager, which starts the parts of the job,
 * prints what they print and ends them. While one of the three lives, it ends everything when the others are
 * killed. All of this runs on one thread.
 *
 * On another machine ssh starts a manager of its own for the parts there (run_part.c); here that is a child.
 */
#ifndef BPS_CMD_RUN_H
#define BPS_CMD_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/report.h"
#include "tools/cmd.h"

/* The default of --grace. */
#define BPS_RUN_GRACE (10 * BPS_S)
/* How long a process may take to end after SIGTERM. */
#define BPS_RUN_TERM (5 * BPS_S)
/* How long the scheduler may take to tell its address. */
#define BPS_RUN_ANNOUNCE (30 * BPS_S)

#define BPS_RUN_STATUS_TIMEOUT  124
#define BPS_RUN_STATUS_NOT_EXEC 126
#define BPS_RUN_STATUS_NO_FILE  127
#define BPS_RUN_STATUS_SIGNAL   128 /* plus the number of the signal */

/* ---- what to start ------------------------------------------------------------------------------------- */

/* A host of --hosts, or a place for one worker that a discovery script may give to a host. */
struct bps_run_host {
    char *name;  /* NULL: the place is free */
    int slots;   /* workers there */
    int slot;    /* the first of them among all workers of that host */
    int size;    /* workers of that host */
    int machine; /* in the plan */
};

/*
 * The share of the job that one machine runs: workers first .. first + count - 1, and every server s with
 * s % machines == machine; none if machine is machines.
 */
struct bps_run_plan {
    int workers, servers; /* of the whole job */
    int first, count;
    int slot, size; /* the first one's local rank, and the local size */
    int machine, machines;
    const char *scheduler; /* "host:port"; "" for a job of one process */
    const char *job;
    const char *host; /* this machine's name in --hosts; NULL where `byteps run` was called */
};

struct bps_run_options {
    struct bps_run_plan plan;
    struct bps_run_host *hosts;
    size_t nhosts;
    struct bps_cmd_conf conf;
    const char **env; /* names of further variables for the other hosts */
    size_t nenv;
    const char *address;   /* of the scheduler */
    const char *scheduler; /* where that is to listen; the plan says where it does */
    const char *ssh;
    uint64_t timeout;    /* ns; 0: none */
    uint64_t grace;      /* ns; how long the others may report when a part has died or the user interrupts */
    int restarts;        /* how often the job may begin anew when it has failed */
    int restart;         /* how often it has */
    uint64_t ends;       /* when --timeout ends it; 0: never */
    bool elastic;        /* the job goes on without workers that are lost, and others are started */
    const char *script;  /* that names the hosts; NULL: none */
    int least, most;     /* of --min-workers and --max-workers; 0: not given. Once configured, of the job */
    bool any_port;       /* the scheduler listens on whatever port is free */
    uint64_t rendezvous; /* ns: how long that script may take to name enough hosts */
    bool open_address;   /* the scheduler's address depends on the hosts */
    const char *log_dir; /* a file for each part there; NULL: none */
    const char *as;      /* the library whose name BytePS has for the programs; NULL: none */
    bool tee;            /* what goes to those files is printed, too */
    bool prefix;
    bool color[2];  /* of stdout, stderr */
    bool part;      /* started by another `byteps run` through ssh */
    pid_t caller;   /* the job ends with this process, 0: with none */
    char **command; /* NULL-terminated */
    void **kept;    /* memory that all of the above points to */
    size_t nkept;
};

#define BPS_RUN_SLOTS_LIMIT 65536 /* on one host; the configuration knows how many workers there may be in all */

/* "A:2,B:2" of an option, or a file with a host in each line. Return -1 to go on, or an exit status after a message. */
int bps_run_hosts_parse(struct bps_run_options *options, const char *option, const char *text);
int bps_run_hosts_read(struct bps_run_options *options, const char *path);
/*
 * What a discovery script prints: "A" or "A:2" in each line. Splits the text; the names are in it. Returns the hosts,
 * which the caller frees, or NULL and which line is none.
 */
struct bps_run_host *bps_run_hosts_of_lines(char *text, size_t *count, struct bps_report *why);
/* Parses the command line and the configuration. Returns -1 to go on, or an exit status after a message. */
int bps_run_options_parse(int argc, char **argv, struct bps_run_options *out);
void bps_run_options_fini(struct bps_run_options *options);
/* Frees `memory` with the options; returns it. */
void *bps_run_keep(struct bps_run_options *options, void *memory);
/* "byteps run": whose messages these are. */
#define BPS_RUN_NAME "run"

/* ---- output (run_output.c) ----------------------------------------------------------------------------- */

/* Bytes on their way to a descriptor that may be slow. */
struct bps_run_sink {
    int fd;       /* -1: nothing is written any more */
    bool owned;   /* the descriptor is closed with it */
    bool regular; /* a file: never slow */
    bool terminal;
    int error; /* errno of the write that failed */
    char *data;
    size_t at, used, size;
};

#define BPS_RUN_LAST 200

/* A line that begins with BPS_RUN_RECORD goes to the stream's record function instead, if it has one. */
#define BPS_RUN_RECORD '\x1e'
typedef void (*bps_run_record_fn)(void *arg, const char *text);

/* What one process writes to stdout or stderr, on its way to a sink line by line. */
struct bps_run_stream {
    int fd;       /* -1: ended */
    size_t place; /* in the loop's array for poll; 0: none */
    struct bps_run_sink *sink;
    struct bps_run_sink *log; /* that gets all lines without a prefix; NULL: none */
    char *last;               /* BPS_RUN_LAST bytes for the last line that may say why the process ends; NULL: none */
    char *prefix;             /* before each line; "" for none */
    bps_run_record_fn record;
    void *record_arg;
    char *data;
    size_t used, scanned, size;
};

void bps_run_sink_init(struct bps_run_sink *sink, int fd);
void bps_run_sink_fini(struct bps_run_sink *sink);
void bps_run_sink_put(struct bps_run_sink *sink, const void *data, size_t n);
/* Writes what goes out without waiting. */
void bps_run_sink_flush(struct bps_run_sink *sink);
static inline size_t bps_run_sink_pending(const struct bps_run_sink *sink)
{
    return sink->used - sink->at;
}
/* Whether a stream may add to it; if not, its process has to wait. */
bool bps_run_sink_room(const struct bps_run_sink *sink);

/* Reads once, at most 64 KiB. False: nothing was there, or the stream has ended. */
bool bps_run_stream_read(struct bps_run_stream *stream);
/* Reads what is there, within reason, though the sink may have no room. */
void bps_run_stream_drain(struct bps_run_stream *stream);
/* Prints the last line even if it is not complete, and closes. */
void bps_run_stream_end(struct bps_run_stream *stream);
/* "[worker 0] ", in colour if wanted; freed by the caller. */
char *bps_run_prefix(const char *label, int rank, bool color);

/* ---- the job ------------------------------------------------------------------------------------------- */

enum bps_run_role { BPS_RUN_SCHEDULER, BPS_RUN_SERVER, BPS_RUN_WORKER, BPS_RUN_HOST };

/* After so many failures within a minute no other one is started in the place of a part that is lost. */
#define BPS_RUN_FAILURES 5

/* A worker or server of an elastic job, whichever process it is: how often it has failed (run_elastic.c). */
struct bps_run_place {
    uint64_t failed[BPS_RUN_FAILURES]; /* when, in turn */
    int failures;
    uint64_t delay; /* before the last start */
    uint64_t due;   /* when another one is started; 0: none is */
};

struct bps_run_child {
    struct bps_run *run;
    enum bps_run_role role;
    int rank; /* of a worker or server; index of a host */
    char label[80];
    pid_t pid;       /* 0: ended */
    int wait;        /* its status from waitpid, once `reaped` */
    bool reaped;     /* ended, not yet judged */
    uint64_t look;   /* at which this was seen */
    bool done;       /* a worker that has ended well; a host whose workers have */
    bool told;       /* its failure is known already, before it is reaped */
    bool spared;     /* a part that the job goes on without, as the scheduler says */
    bool unneeded;   /* a worker that has come too late to join, and is to end; a host where no worker has ended well */
    uint64_t leaves; /* when a host was told to end that is not named any more; 0: it was not */
    uint64_t began, ended;
    unsigned joined; /* the number of the last gathering that it was a member of; 0: none */
    struct bps_run_place place;
    struct bps_run_stream stream[2];
    struct bps_run_sink control; /* to the standard input of the scheduler, or of a host's ssh */
    struct bps_run_sink log;     /* its file in --log-dir */
    char last[BPS_RUN_LAST];     /* line on its standard error */
};

enum bps_run_phase {
    BPS_RUN_STARTING, /* the scheduler has not told its address */
    BPS_RUN_WORKING,
    BPS_RUN_FAILING, /* a part has died or the user has interrupted; the others may report */
    BPS_RUN_ENDING,  /* SIGTERM was sent */
    BPS_RUN_KILLING  /* SIGKILL was sent */
};

struct bps_run;

/* What becomes of a scheduler that was started (run_scheduler.c). */
struct bps_run_scheduler {
    /* There is something to read from run->announce. */
    void (*announced)(struct bps_run *run);
    /* Whether this child is it, was killed, and may be started again. If that was once too often, it says so. */
    bool (*may_return)(struct bps_run *run, const struct bps_run_child *child);
    /* Starts it again, where it has listened. */
    void (*start)(struct bps_run *run);
};

/* What becomes of members that an elastic job has lost (run_elastic.c). */
struct bps_run_elastic {
    /* Whether the job goes on without this one, which has failed. */
    bool (*spares)(const struct bps_run *run, const struct bps_run_child *child);
    /* If so: has another one started later. */
    void (*lose)(struct bps_run *run, struct bps_run_child *child);
    /* Starts those that are due. */
    void (*replace)(struct bps_run *run, uint64_t now);
    /* The scheduler says: all have joined, the first time or after others have left; */
    void (*gathered)(struct bps_run *run);
    void (*joined)(struct bps_run *run, int pid); /* then, of each of these; */
    /* a worker has left in order; */
    void (*closes)(struct bps_run *run);
    /* the job goes on without "worker 1 (host a, pid 7)"; "": without somebody, somewhere; */
    void (*goes_on)(struct bps_run *run, const char *member);
    /* it cannot go on. */
    void (*hopeless)(struct bps_run *run);
};
extern const struct bps_run_elastic bps_run_elastic;

/* A discovery script that runs (run_ask.c). */
struct bps_run_ask {
    pid_t pid;     /* 0: none does */
    int fd;        /* what it prints; -1: that has ended */
    uint64_t late; /* when it is killed */
    char *text;    /* so far */
    size_t used;
    bool killed;
};

/* Starts the script of --host-discovery-script. False: it cannot, as errno tells. */
bool bps_run_ask_begin(struct bps_run_ask *ask, const char *script);
/* Takes what it has printed, without waiting. */
void bps_run_ask_read(struct bps_run_ask *ask);
void bps_run_ask_kill(struct bps_run_ask *ask);
/* It has ended so. Returns what it has printed, freed by the caller; NULL and why that is not to be used. */
char *bps_run_ask_end(struct bps_run_ask *ask, int wait, struct bps_report *why);

/*
 * Whose place is whose (run_places.c). At the beginning of a job each host that the script names gets its places, up to
 * those of --max-workers; later those that are not named any more lose theirs, and others get what is free. False: none
 * is named that takes part in the job, and the last one that does stays for now.
 */
#define BPS_RUN_PLACES_LIMIT 32768
int bps_run_places_named(const struct bps_run_host *hosts, size_t n);
void bps_run_places_begin(struct bps_run_options *options, const struct bps_run_host *hosts, size_t n);
bool bps_run_places_follow(struct bps_run *run, const struct bps_run_host *hosts, size_t n);

/* Hosts that come and go, as a script says (run_discover.c). */
struct bps_run_discovery {
    /* There is something to read, or it is time to do something. */
    void (*tick)(struct bps_run *run, uint64_t now);
    /* A process has ended, which may be the script. */
    void (*ended)(struct bps_run *run, pid_t pid, int wait);
};
extern const struct bps_run_discovery bps_run_discovery;

/* Waits until the script names enough hosts, and gives them places. Returns -1 to go on, or an exit status. */
int bps_run_discover(struct bps_run_options *options);

struct bps_run {
    const char *name; /* subcommand, for messages */
    struct bps_run_options *options;
    /* Called in a new process before it becomes the child. */
    void (*environment)(const struct bps_run *run, const struct bps_run_child *child);
    /* Servers and workers, or the hosts that start them, once the address of the scheduler is known. */
    void (*start_parts)(struct bps_run *run);
    /* Starts a server or worker, in the place of one that has ended if there is such. False: the job ends. */
    bool (*start_part)(struct bps_run *run, enum bps_run_role role, int rank);
    bool inherit; /* children write straight to our stdout and stderr */
    enum bps_run_phase phase;
    uint64_t deadline;                         /* of the phase; 0: none */
    uint64_t judge_at;                         /* when to judge what has ended; 0: nothing is waiting */
    uint64_t looks;                            /* for ended children, so far */
    uint64_t job_deadline;                     /* of --timeout; 0: none */
    int status;                                /* of the first part that failed */
    char cause[400];                           /* which one that was, and of what; "": it has been said */
    bool interrupted;                          /* by a signal: what the parts exit with is of no interest */
    bool part_done;                            /* as a part: has told that no worker is left here */
    bool part_lost;                            /* as a part: the connection has ended */
    bool doomed;                               /* as a part: some member was lost for whom the job ends */
    bool services_ended;                       /* the servers and the scheduler are to end */
    bool childless;                            /* not even an adopted process is left, nor is one to be started */
    bool impatient;                            /* the user has interrupted when only output was left */
    bool lost_output;                          /* some could not be written */
    int signals;                               /* signalfd */
    int announce;                              /* where the scheduler says something; -1: nothing is expected */
    const struct bps_run_scheduler *scheduler; /* NULL: none was started here */
    char said[512];                            /* by the scheduler: a line that is not complete */
    size_t said_used;
    bool gathered;   /* all have joined: the job goes on when the scheduler is lost */
    bool leaderless; /* it was lost, and no other one has taken over the job yet */
    char *left;      /* the workers that have left since, "0,3"; NULL: none */
    int nleft;
    char again[300];                       /* how the scheduler has ended that is to be started again; "": it has not */
    uint64_t scheduler_began;              /* when it was started */
    int soon;                              /* how often in a row it was killed soon after that */
    const struct bps_run_elastic *elastic; /* NULL: the job ends when a worker is lost */
    uint64_t replace_at;                   /* when to start another one; 0: none */
    const struct bps_run_discovery *discovery; /* NULL: the hosts are those given */
    struct bps_run_ask ask;
    uint64_t ask_at;      /* when the script is due, or late; 0: never */
    char complaint[400];  /* about its last answer; "": none */
    uint64_t gathered_at; /* when all had joined, the last time */
    unsigned generation;  /* how often that was */
    bool knows_members;   /* the scheduler's numbers of processes are those of parts here */
    uint32_t number;      /* as a part: of a process, of which so many bytes are to come */
    unsigned number_bytes;
    bool closes;          /* a worker has left in order since: the others are about to */
    bool hopeless;        /* the scheduler has ended the job */
    int gone_status;      /* of the first part that was lost since all have gathered; 0: none */
    char gone_cause[400]; /* as `cause` */
    const char *lost;     /* the member whose loss ends the job, as in its messages; NULL: none so far */
    struct bps_run_sink sink[2], nowhere;
    struct bps_run_child *children;
    size_t nchildren, room;
};

/* Runs `body` as the manager of a job under two guards. Returns in all three, with the exit status (run_guard.c). */
int bps_run_guarded(const char *name, int (*body)(void *arg), void *arg);
/* Has SIGTERM sent to this process when its parent, the caller, ends; false if it has ended already. */
bool bps_run_follow(pid_t caller);
/* Stops this process, as SIGTSTP does where it is not blocked. */
void bps_run_stop_self(void);
/* Sends a signal to every child of this process that is not in children[n]; returns how many there were. */
size_t bps_run_signal_adopted(const struct bps_run_child *children, size_t n, int number);

/* Prepares a job of at most `room` children; bps_run_fini frees what came of it (run_loop.c). */
bool bps_run_init(struct bps_run *run, size_t room);
/* Frees what there is of a child that has ended. */
void bps_run_child_fini(struct bps_run_child *child);
void bps_run_fini(struct bps_run *run);
/* Prints, collects and waits until nothing is left of the job; returns its exit status. */
int bps_run_loop(struct bps_run *run);

/*
 * Starts a child; for scheduler and servers argv are those of this very program. `pass` is a descriptor that
 * it inherits, -1 for none. On failure says so, begins the end of the job and returns NULL (run_spawn.c).
 */
struct bps_run_child *bps_run_spawn(struct bps_run *run, enum bps_run_role role, int rank, const char *label,
                                    char **argv, int pass);
/* In a new process: no signal is blocked, and each does what it does by default. */
void bps_run_reset_signals(void);
/* Starts the scheduler (run_scheduler.c). */
void bps_run_start_scheduler(struct bps_run *run);
/* The environment of the parts of `byteps run`. */
void bps_run_environment(const struct bps_run *run, const struct bps_run_child *child);
/* Whether BytePS stands in for this library here: returns -1, or an exit status after a message (run_as.c). */
int bps_run_as_check(const char *name);
/* In the new process of a worker, with its environment: has Python find what stands in for that. */
void bps_run_as_environment(const char *name);
/* Notes the variables of this process, before any of its job's are set. False: no memory (run_outer.c). */
bool bps_run_keep_outer(void);
/* In a process of a job: its variables become those that were noted. */
void bps_run_leave_outer(void);
/* Makes the installed package importable in whatever Python runs; the caller's own directories come first. */
void bps_run_environment_languages(void);
/*
 * In the new process of a worker, with its environment: binds it to the cores of the section `affinity`. What
 * is wrong with those is printed and ends the process (run_bind.c).
 */
void bps_run_bind(const struct bps_run *run);
/* Whether a server runs on this machine. */
static inline bool bps_run_server_here(const struct bps_run_plan *plan, int server)
{
    return server % plan->machines == plan->machine;
}

/* Prints "byteps NAME: text" between the lines of the job. */
void bps_run_say(struct bps_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "SIGKILL" */
const char *bps_run_signal_name(int number, char *text, size_t n);

/* What makes a job end (run_end.c). */
void bps_run_fail(struct bps_run *run, int status);
/* Says at the end which part failed first, behind all that the others have said. */
void bps_run_conclude(struct bps_run *run);
void bps_run_end(struct bps_run *run);
/* If the job has not failed so far: workers that wait for others to join end with this text as their error. */
void bps_run_absent(struct bps_run *run, const char *why);
/* The scheduler has lost a member, "worker 1 (...)", for whom the job ends. The text stays. */
void bps_run_lost(struct bps_run *run, const char *member);
/* As a part: the same of some member, here or elsewhere. */
void bps_run_doom(struct bps_run *run);
/* The scheduler has lost this server, and the job goes on. */
void bps_run_without(struct bps_run *run, int server);
/* A part is lost without which the job goes on: the status and the cause that it has if it fails for that. */
void bps_run_gone(struct bps_run *run, int status, const char *cause);
/* What the other hosts hear of an elastic job. */
#define BPS_RUN_JOINED   123 /* a process has, whose number follows in 4 bytes, the lowest first */
#define BPS_RUN_GATHERED 124
#define BPS_RUN_CLOSES   125
#define BPS_RUN_GOES_ON  126
void bps_run_tell_hosts(struct bps_run *run, unsigned char byte);
/* And of any:  of the servers that are lost and not missed, WITHOUT + N is the Nth on a host. */
#define BPS_RUN_DOOM    127
#define BPS_RUN_WITHOUT 128
void bps_run_interrupt(struct bps_run *run, int number);
void bps_run_reap(struct bps_run *run);
void bps_run_tick(struct bps_run *run, uint64_t now);
/* Tells the servers and the scheduler, here and elsewhere, that no worker is left. */
void bps_run_end_services(struct bps_run *run);

/* Other machines (run_part.c, run_address.c). */
struct bps_run_child *bps_run_start_host(struct bps_run *run, size_t index);
/* For `byteps run --part`: reads what bps_run_start_host has sent. Returns -1, or an exit status. */
int bps_run_part_read(struct bps_run_options *out);
void bps_run_part_control(struct bps_run *run);
void bps_run_part_record(void *child, const char *text);
/* As a part, tells the one who has started it; else does nothing. */
void bps_run_part_tell(struct bps_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Of --log-dir: makes the directory, and opens the file of a part. False: it cannot, as errno tells (run_log.c). */
bool bps_run_log_make(const char *dir);
bool bps_run_log_open(struct bps_run *run, struct bps_run_child *child);
/* Whether the name of a host stands for this machine (run_address.c). */
bool bps_run_is_here(const char *host);
/* Chooses an address of this machine that all hosts can reach, with port 0; freed by the caller. */
char *bps_run_choose_address(const struct bps_run_options *options);
/*
 * Keeps the port until this process ends, so that it is free whenever another scheduler is to listen there: the socket
 * is bound, but does not listen. Returns the address with the port that it has got instead of 0; freed by the caller.
 * An address that cannot be had here is returned as it is: the scheduler says why.
 */
char *bps_run_hold_address(const char *address);

#endif
