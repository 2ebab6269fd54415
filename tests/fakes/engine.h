/* What both fake libraries share: the mapped scenario, its clocks, counters and loads, and the gate
   that every call goes through. Compiled into each library, visible in neither. */
#ifndef ENGINE_H
#define ENGINE_H

#include "scenario.h"

#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

enum function {
#define FUNCTION(name) FN_##name,
#include "functions.h"
#undef FUNCTION
    FUNCTION_COUNT
};
_Static_assert(FUNCTION_COUNT <= FUNCTION_LIMIT, "functions.h has outgrown FUNCTION_LIMIT");

/* NVML and HLML number these alike. */
enum status {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMED_OUT = 10,
    DEVICE_IS_LOST = 15,
    LIBRARY_MISMATCH = 18,
    VERSION_MISMATCH = 25
};

enum vendor { NVIDIA = 0, HABANA = 1 };

struct handle {
    int32_t slot;
};

/* Which vendor's library this is; each library defines it. */
extern const enum vendor vendor;

/* The mapped scenario, the vendor's part of it, and one device; scenario() may be NULL, the
   others may be used once a gate has let a call through. */
struct scenario *scenario(void);
struct driver *driver(void);
struct device *device_at(const struct handle *handle);

/* The gates: count the call, hang, delay and fail it as told. enter() is for calls without a
   device, enter_device() for those with one. */
int enter(enum function function);
int enter_device(enum function function, const struct handle *handle, struct device **device);

/* Starts are counted; stopping takes one back, or all of them. */
int start_library(enum function function);
int stop_library(enum function function, int all);

/* What an initialised process sees: fixed at its initialisation unless the scenario says otherwise. */
int visible_count(void);
const struct handle *visible_handle(int index);
const struct handle *find_handle(const char *text, int (*is_meant)(const struct device *, const char *));

/* Puts a handle that was looked up through its gate; NULL answers `otherwise`. */
int give_handle(enum function function, const struct handle *found, int otherwise, const struct handle **handle);
int has_uuid(const struct device *device, const char *uuid);
int index_of(const struct handle *handle);
int is_lost(const struct handle *handle);

int64_t monotonic_nanoseconds(void);
int64_t realtime_microseconds(void);
int64_t sample_clock_microseconds(const struct device *device);
void wait_microseconds(int64_t microseconds);

uint64_t counter_value(const struct counter *counter);
int give_counter(const struct counter *counter, uint64_t *value);
int give_unsigned(int32_t number, unsigned *value);
int give_long(int64_t number, uint64_t *value);
int give_text(const char *text, char *buffer, unsigned size);

/* The load that counts at a moment, and its average over what ends there, in whole percent. */
const struct load *load_at(const struct device *device, int memory, int64_t at);
unsigned load_percent(const struct device *device, int memory, int64_t end, int64_t length);
unsigned current_percent(const struct device *device, int memory);

/* Which types of event are wanted of which device, whether a loss was told before the events, and
   the number of the next one to look at. */
struct event_set {
    int loss_told;
    uint64_t wanted[DEVICE_LIMIT];
    uint32_t generations[DEVICE_LIMIT];
    uint64_t next;
};

int create_set(enum function function, struct event_set **set);
int free_set(enum function function, struct event_set *set);
int register_events(const struct handle *handle, uint64_t types, struct event_set *set);

/* Waits for the next event that the set wants; a timeout of 0xffffffff waits for ever. */
int wait_for_event(enum function function, struct event_set *set, uint32_t timeout_milliseconds,
                   const struct handle **handle, struct event *event);

#endif
