#define _GNU_SOURCE
#include "engine.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct scenario *mapped;
static struct driver *part;
static uint32_t library_version;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned start_count;
static uint32_t start_epoch;
static uint32_t generations[DEVICE_LIMIT];
static int visible[DEVICE_LIMIT];
static int visible_total;
static const struct handle handles[DEVICE_LIMIT] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7},
    {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}};

/* ---- the scenario ---- */

static struct scenario *map_file(const char *path)
{
    if (path == NULL)
        return NULL;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return NULL;
    struct stat facts;
    void *memory = MAP_FAILED;
    if (fstat(file, &facts) == 0 && (size_t)facts.st_size >= sizeof(struct scenario))
        memory = mmap(NULL, sizeof(struct scenario), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        return NULL;
    struct scenario *found = memory;
    if (found->magic == MAGIC && found->size == sizeof(struct scenario))
        return found;
    munmap(memory, sizeof(struct scenario));
    return NULL;
}

static void attach(const char *path)
{
    struct scenario *found = map_file(path);
    if (found == NULL)
        return;
    part = vendor == NVIDIA ? &found->nvidia : &found->habana;
    library_version = part->library_version;
    mapped = found;
}

/* The real library's version is that of the file it was loaded from. */
__attribute__((constructor)) static void attach_when_loaded(void)
{
    attach(getenv("FAKE_ACCELERATORS"));
}

struct scenario *scenario(void)
{
    if (mapped == NULL)
        attach(getenv("FAKE_ACCELERATORS"));
    return mapped;
}

struct driver *driver(void) { return part; }
struct device *device_at(const struct handle *handle) { return &part->devices[handle->slot]; }

/* For a test process that outlives its fake machines: as if the library had just been loaded.
   The old mapping stays, since another thread may be inside a call. */
EXPORT int fake_attach(const char *path)
{
    pthread_mutex_lock(&lock);
    mapped = NULL;
    part = NULL;
    start_count = 0;
    attach(path);
    pthread_mutex_unlock(&lock);
    return mapped == NULL ? DRIVER_NOT_LOADED : SUCCESS;
}

EXPORT unsigned fake_scenario_size(void) { return sizeof(struct scenario); }
EXPORT unsigned fake_device_size(void) { return sizeof(struct device); }
EXPORT unsigned fake_offset_of_habana(void) { return offsetof(struct scenario, habana); }
EXPORT unsigned fake_offset_of_calls(void) { return offsetof(struct scenario, calls); }
EXPORT unsigned fake_offset_of_processes(void) { return offsetof(struct device, processes); }
EXPORT unsigned fake_function_count(void) { return FUNCTION_COUNT; }

/* ---- clocks ---- */

static int64_t clock_nanoseconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t monotonic_nanoseconds(void)
{
    if (mapped->clock_stopped)
        return mapped->stopped_monotonic_nanoseconds;
    return clock_nanoseconds(CLOCK_MONOTONIC);
}

int64_t realtime_microseconds(void)
{
    if (mapped->clock_stopped)
        return mapped->stopped_realtime_microseconds;
    return clock_nanoseconds(CLOCK_REALTIME) / 1000;
}

int64_t sample_clock_microseconds(const struct device *device)
{
    if (device->sample_clock_is_boottime && !mapped->clock_stopped)
        return clock_nanoseconds(CLOCK_BOOTTIME) / 1000;
    return realtime_microseconds();
}

void wait_microseconds(int64_t microseconds)
{
    struct timespec length = {microseconds / 1000000, microseconds % 1000000 * 1000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &length, NULL);
}

static void spin_microseconds(int64_t microseconds)
{
    int64_t end = clock_nanoseconds(CLOCK_MONOTONIC) + microseconds * 1000;
    while (clock_nanoseconds(CLOCK_MONOTONIC) < end)
        ;
}

/* ---- faults and gates ---- */

static enum function any_function(void) { return vendor == NVIDIA ? FN_nvml_any : FN_hlml_any; }

static const struct fault *hanging(enum function function, int column)
{
    const struct fault *places[] = {&mapped->faults[function][column], &mapped->faults[any_function()][column],
        &mapped->faults[function][0], &mapped->faults[any_function()][0]};
    for (int i = 0; i < 4; i++)
        if (places[i]->hang_milliseconds != 0)
            return places[i];
    return NULL;
}

/* A machine that has gone from under a hung call (its file is still mapped) must not hold it. */
static void hang(enum function function, int column)
{
    int64_t begin = clock_nanoseconds(CLOCK_MONOTONIC);
    const struct scenario *own = mapped;
    const struct fault *fault;
    while (mapped == own && (fault = hanging(function, column)) != NULL) {
        int64_t waited = (clock_nanoseconds(CLOCK_MONOTONIC) - begin) / 1000000;
        if (fault->hang_milliseconds > 0 && waited >= fault->hang_milliseconds)
            return;
        wait_microseconds(1000);
    }
}

static int failing(enum function function, int column)
{
    const struct fault *places[] = {&mapped->faults[function][column], &mapped->faults[any_function()][column],
        &mapped->faults[function][0], &mapped->faults[any_function()][0]};
    for (int i = 0; i < 4; i++)
        if (places[i]->code != 0)
            return places[i]->code;
    return SUCCESS;
}

static void count_and_hang(enum function function, int column)
{
    __atomic_fetch_add(&mapped->calls[function][column], 1, __ATOMIC_RELAXED);
    if (mapped->faults_used)
        hang(function, column);
}

static int driver_status(void)
{
    if (start_count == 0)
        return UNINITIALIZED;
    if (library_version != part->kernel_version)
        return LIBRARY_MISMATCH;
    if (!part->loaded)
        return part->unloaded_code;
    return part->epoch == start_epoch ? SUCCESS : UNINITIALIZED;
}

int enter(enum function function)
{
    if (scenario() == NULL)
        return UNINITIALIZED;
    count_and_hang(function, 0);
    int status = driver_status();
    if (status == SUCCESS && mapped->faults_used)
        status = failing(function, 0);
    return status;
}

static int is_handle(const struct handle *handle)
{
    return handle >= handles && handle < handles + DEVICE_LIMIT;
}

int is_lost(const struct handle *handle)
{
    const struct device *device = device_at(handle);
    return device->lost || !device->present || device->generation != generations[handle->slot];
}

int enter_device(enum function function, const struct handle *handle, struct device **device)
{
    if (scenario() == NULL)
        return UNINITIALIZED;
    if (!is_handle(handle)) {
        int status = enter(function);
        return status ? status : INVALID_ARGUMENT;
    }
    *device = device_at(handle);
    count_and_hang(function, 1 + handle->slot);
    if ((*device)->delay_microseconds)
        ((*device)->delay_spins ? spin_microseconds : wait_microseconds)((*device)->delay_microseconds);
    int status = driver_status();
    if (status == SUCCESS && is_lost(handle))
        status = DEVICE_IS_LOST;
    if (status == SUCCESS && mapped->faults_used)
        status = failing(function, 1 + handle->slot);
    return status;
}

/* ---- start, stop, and what is seen ---- */

static void look(void)
{
    visible_total = 0;
    for (int slot = 0; slot < DEVICE_LIMIT; slot++) {
        const struct device *device = &part->devices[slot];
        generations[slot] = device->generation;
        if (device->present && !(device->lost && device->hidden))
            visible[visible_total++] = slot;
    }
}

static int start_status(enum function function)
{
    if (library_version != part->kernel_version)
        return LIBRARY_MISMATCH;
    if (!part->loaded)
        return DRIVER_NOT_LOADED;
    return mapped->faults_used ? failing(function, 0) : SUCCESS;
}

int start_library(enum function function)
{
    if (scenario() == NULL)
        return DRIVER_NOT_LOADED;
    count_and_hang(function, 0);
    pthread_mutex_lock(&lock);
    int status = start_status(function);
    if (status == SUCCESS && start_count++ == 0) {
        start_epoch = part->epoch;
        look();
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int stop_library(enum function function, int all)
{
    if (scenario() == NULL)
        return UNINITIALIZED;
    count_and_hang(function, 0);
    pthread_mutex_lock(&lock);
    int status = start_count == 0 ? UNINITIALIZED : failing(function, 0);
    if (status == SUCCESS)
        start_count = all ? 0 : start_count - 1;
    pthread_mutex_unlock(&lock);
    return status;
}

int visible_count(void)
{
    if (part->added_seen_at_once) {
        pthread_mutex_lock(&lock);
        look();
        pthread_mutex_unlock(&lock);
    }
    return visible_total;
}

const struct handle *visible_handle(int index)
{
    if (scenario() == NULL || index < 0 || index >= visible_count())
        return NULL;
    return &handles[visible[index]];
}

const struct handle *find_handle(const char *text, int (*is_meant)(const struct device *, const char *))
{
    if (scenario() == NULL || text == NULL)
        return NULL;
    for (int index = visible_count() - 1; index >= 0; index--)
        if (is_meant(&part->devices[visible[index]], text))
            return &handles[visible[index]];
    return NULL;
}

int has_uuid(const struct device *device, const char *uuid) { return strcmp(device->uuid, uuid) == 0; }

int give_handle(enum function function, const struct handle *found, int otherwise, const struct handle **handle)
{
    struct device *device;
    int gate = found == NULL ? enter(function) : enter_device(function, found, &device);
    if (gate != SUCCESS)
        return gate;
    if (found == NULL || handle == NULL)
        return otherwise;
    *handle = found;
    return SUCCESS;
}

int index_of(const struct handle *handle)
{
    for (int index = 0; index < visible_total; index++)
        if (visible[index] == handle->slot)
            return index;
    return -1;
}

/* ---- values ---- */

/* The clock is read while the counter holds still: no later change can then be of an earlier time,
   and no value falls behind one that was given before. A writer that died half-way must not hold
   the reader for long. */
uint64_t counter_value(const struct counter *counter)
{
    const volatile struct counter *shared = counter;
    double value = 0;
    for (int tries = 0; tries < 500; tries++) {
        uint32_t before = __atomic_load_n(&shared->sequence, __ATOMIC_ACQUIRE);
        int64_t elapsed = monotonic_nanoseconds() - shared->since_nanoseconds;
        value = shared->base + (elapsed > 0 ? elapsed * 1e-9 * shared->per_second : 0.0);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (before % 2 == 0 && before == shared->sequence)
            break;
        if (tries > 100)
            wait_microseconds(20);
    }
    return (uint64_t)value;
}

int give_counter(const struct counter *counter, uint64_t *value)
{
    if (value == NULL)
        return INVALID_ARGUMENT;
    if (!counter->supported)
        return NOT_SUPPORTED;
    *value = counter_value(counter);
    return SUCCESS;
}

int give_unsigned(int32_t number, unsigned *value)
{
    if (value == NULL)
        return INVALID_ARGUMENT;
    if (number == UNSUPPORTED)
        return NOT_SUPPORTED;
    *value = (unsigned)number;
    return SUCCESS;
}

int give_long(int64_t number, uint64_t *value)
{
    if (value == NULL)
        return INVALID_ARGUMENT;
    if (number == UNSUPPORTED_LONG)
        return NOT_SUPPORTED;
    *value = (uint64_t)number;
    return SUCCESS;
}

int give_text(const char *text, char *buffer, unsigned size)
{
    if (buffer == NULL)
        return INVALID_ARGUMENT;
    if (text[0] == '\0')
        return NOT_SUPPORTED;
    size_t length = strlen(text) + 1;
    if (length > size)
        return INSUFFICIENT_SIZE;
    memcpy(buffer, text, length);
    return SUCCESS;
}

/* ---- loads ---- */

const struct load *load_at(const struct device *device, int memory, int64_t at)
{
    if (memory)
        return at > device->memory_load_since_microseconds ? &device->memory_load : &device->memory_load_before;
    return at > device->load_since_microseconds ? &device->load : &device->load_before;
}

/* Microseconds of high load since the clock's zero. */
static double high_time(const struct load *load, int64_t at)
{
    double high = load->duty * load->period_microseconds;
    double into = at % load->period_microseconds;
    return at / load->period_microseconds * high + (into < high ? into : high);
}

static double load_sum(const struct load *load, int64_t begin, int64_t end)
{
    if (load->idle || end <= begin)
        return 0;
    double high = high_time(load, end) - high_time(load, begin);
    return load->low_percent * (double)(end - begin) + (load->high_percent - load->low_percent) * high;
}

unsigned load_percent(const struct device *device, int memory, int64_t end, int64_t length)
{
    int64_t begin = end - length;
    int64_t since = memory ? device->memory_load_since_microseconds : device->load_since_microseconds;
    int64_t change = since < begin ? begin : since > end ? end : since;
    double sum = load_sum(memory ? &device->memory_load_before : &device->load_before, begin, change)
        + load_sum(memory ? &device->memory_load : &device->load, change, end);
    return (unsigned)lround(sum / length);
}

unsigned current_percent(const struct device *device, int memory)
{
    int64_t length = device->sample_period_microseconds;
    int64_t now = sample_clock_microseconds(device);
    return load_percent(device, memory, now - now % length, length);
}

/* ---- events ---- */

int create_set(enum function function, struct event_set **set)
{
    int gate = enter(function);
    if (gate != SUCCESS)
        return gate;
    *set = calloc(1, sizeof **set);
    (*set)->next = mapped->event_count;
    return SUCCESS;
}

int free_set(enum function function, struct event_set *set)
{
    int gate = enter(function);
    if (gate == SUCCESS)
        free(set);
    return gate;
}

int register_events(const struct handle *handle, uint64_t types, struct event_set *set)
{
    if (set == NULL)
        return INVALID_ARGUMENT;
    set->wanted[handle->slot] |= types;
    set->generations[handle->slot] = device_at(handle)->generation;
    return SUCCESS;
}

static int next_event(struct event_set *set, struct event *event)
{
    uint64_t count = __atomic_load_n(&mapped->event_count, __ATOMIC_ACQUIRE);
    if (count > EVENT_LIMIT && set->next < count - EVENT_LIMIT)
        set->next = count - EVENT_LIMIT;
    while (set->next < count) {
        *event = mapped->events[set->next++ % EVENT_LIMIT];
        if (event->vendor == (int)vendor && event->generation == set->generations[event->device]
            && (set->wanted[event->device] & event->type))
            return 1;
    }
    return 0;
}

static int set_status(const struct event_set *set)
{
    int status = driver_status();
    for (int slot = 0; slot < DEVICE_LIMIT && status == SUCCESS; slot++)
        if (set->wanted[slot] && is_lost(&handles[slot]))
            status = DEVICE_IS_LOST;
    return status;
}

/* Sleeps until the scenario is woken; a second at most, since a change may come without a wake.
   FAKE_ACCELERATORS_SLEEP=sound lifts that, so that wake-ups can be counted. */
static void sleep_until_woken(uint32_t seen, int64_t milliseconds)
{
    if (milliseconds > 1000 && getenv("FAKE_ACCELERATORS_SLEEP") == NULL)
        milliseconds = 1000;
    struct timespec length = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    syscall(SYS_futex, &mapped->wakes, FUTEX_WAIT, seen, &length, NULL, 0);
}

enum loss_comes { LAST = 0, ALSO_FIRST = 1, ALWAYS = 2 };

/* As a rule, what a device still reported is given before it is said to be lost: XID 79 comes first. */
static int early_loss(struct event_set *set)
{
    int is_early = part->loss_comes == ALWAYS || (part->loss_comes == ALSO_FIRST && !set->loss_told);
    int status = is_early ? set_status(set) : SUCCESS;
    set->loss_told |= status == DEVICE_IS_LOST;
    return status;
}

int wait_for_event(enum function function, struct event_set *set, uint32_t timeout_milliseconds,
                   const struct handle **handle, struct event *event)
{
    int status = set == NULL ? INVALID_ARGUMENT : enter(function);
    int64_t begin = clock_nanoseconds(CLOCK_MONOTONIC);
    while (status == SUCCESS) {
        uint32_t seen = __atomic_load_n(&mapped->wakes, __ATOMIC_ACQUIRE);
        int64_t left = timeout_milliseconds - (clock_nanoseconds(CLOCK_MONOTONIC) - begin) / 1000000;
        status = driver_status();
        if (status == SUCCESS)
            status = early_loss(set);
        if (status == SUCCESS && next_event(set, event)) {
            *handle = &handles[event->device];
            return SUCCESS;
        }
        if (status == SUCCESS)
            status = set_status(set);
        if (status == SUCCESS && timeout_milliseconds == UINT32_MAX)
            sleep_until_woken(seen, 1000);
        else if (status == SUCCESS && left > 0)
            sleep_until_woken(seen, left);
        else if (status == SUCCESS)
            status = TIMED_OUT;
    }
    return status;
}
