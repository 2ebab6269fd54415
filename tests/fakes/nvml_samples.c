/* libnvidia-ml.so.1: the sample buffers and the process lists. */
#include "nvml.h"

#include <string.h>

enum sampling { POWER = 0, GPU = 1, MEMORY = 2, ENCODER = 3, DECODER = 4, SM_CLOCK = 5, MEMORY_CLOCK = 6 };

static int32_t steady_sample(const struct device *device, unsigned sampling)
{
    switch (sampling) {
    case POWER: return device->power_milliwatts;
    case ENCODER: return device->encoder_utilization;
    case DECODER: return device->decoder_utilization;
    case SM_CLOCK: return device->sm_clock;
    case MEMORY_CLOCK: return device->memory_clock;
    default: return UNSUPPORTED;
    }
}

static int is_supported(const struct device *device, unsigned sampling)
{
    if (sampling == GPU || sampling == MEMORY)
        return device->mig_mode != 1;
    return steady_sample(device, sampling) != UNSUPPORTED;
}

static unsigned sample_at(const struct device *device, unsigned sampling, int64_t end)
{
    if (sampling == GPU || sampling == MEMORY)
        return load_percent(device, sampling == MEMORY, end, device->sample_period_microseconds);
    return (unsigned)steady_sample(device, sampling);
}

/* A sample ends at each multiple of the sample period, so that all processes see the same ones. */
DEVICE_CALL(nvmlDeviceGetSamples,
    (unsigned sampling, unsigned long long last_seen, unsigned *value_type, unsigned *count, struct nvml_sample *samples), {
    if (sampling > 9 || value_type == NULL || count == NULL)
        return INVALID_ARGUMENT;
    if (!is_supported(device, sampling))
        return NOT_SUPPORTED;
    *value_type = UNSIGNED_INT;
    if (samples == NULL) {
        *count = (unsigned)device->sample_depth;
        return SUCCESS;
    }
    int64_t period = device->sample_period_microseconds;
    int64_t newest = sample_clock_microseconds(device) / period;
    int64_t first = newest - device->sample_depth + 1;
    if ((int64_t)last_seen / period + 1 > first)
        first = (int64_t)last_seen / period + 1;
    unsigned given = 0;
    for (int64_t number = first; number <= newest && given < *count; number++) {
        if (load_at(device, sampling == MEMORY, number * period)->idle)
            continue;
        samples[given++] = (struct nvml_sample){number * period, {.ullVal = sample_at(device, sampling, number * period)}};
    }
    *count = given;
    return given ? SUCCESS : NOT_FOUND;
})

/* An entry of any version begins with the process and its memory; what follows has all bits set,
   "not available", but for the protected memory that the longest ends with. */
static void put_process(char *entry, size_t size, const struct process *process)
{
    memset(entry, 0xff, size);
    *(unsigned *)entry = process->pid;
    *(uint64_t *)(entry + 8) = (uint64_t)process->memory_bytes;
    if (size == sizeof(struct nvml_process_r535))
        ((struct nvml_process_r535 *)entry)->protected_memory = 0;
}

static int give_processes(const struct device *device, int kind, unsigned *count, char *list, size_t size)
{
    unsigned room = *count;
    unsigned found = 0;
    for (int place = 0; place < device->process_count; place++) {
        const struct process *process = &device->processes[place];
        if (process->kind != kind)
            continue;
        if (list != NULL && found < room)
            put_process(list + found * size, size, process);
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

static size_t newest_size(void)
{
    int32_t bytes = driver()->process_entry_bytes;
    return bytes ? (size_t)bytes : sizeof(struct nvml_process);
}

#define PROCESS_CALL(function, kind, size) \
    DEVICE_CALL(function, (unsigned *count, char *list), return give_processes(device, kind, count, list, size);)

PROCESS_CALL(nvmlDeviceGetComputeRunningProcesses_v3, 0, newest_size())
PROCESS_CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, 1, newest_size())
PROCESS_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, 2, newest_size())
PROCESS_CALL(nvmlDeviceGetComputeRunningProcesses_v2, 0, sizeof(struct nvml_process))
PROCESS_CALL(nvmlDeviceGetGraphicsRunningProcesses_v2, 1, sizeof(struct nvml_process))
PROCESS_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v2, 2, sizeof(struct nvml_process))
PROCESS_CALL(nvmlDeviceGetComputeRunningProcesses, 0, sizeof(struct nvml_process_v1))
PROCESS_CALL(nvmlDeviceGetGraphicsRunningProcesses, 1, sizeof(struct nvml_process_v1))
PROCESS_CALL(nvmlDeviceGetMPSComputeRunningProcesses, 2, sizeof(struct nvml_process_v1))

/* A new sample of every process each second. */
DEVICE_CALL(nvmlDeviceGetProcessUtilization,
    (struct nvml_process_sample *samples, unsigned *count, unsigned long long last_seen), {
    if (device->mig_mode == 1)
        return NOT_SUPPORTED;
    uint64_t stamp = realtime_microseconds() / 1000000 * 1000000;
    unsigned room = *count;
    *count = stamp > last_seen ? (unsigned)device->process_count : 0;
    if (*count == 0)
        return NOT_FOUND;
    if (samples == NULL || room < *count)
        return INSUFFICIENT_SIZE;
    for (unsigned place = 0; place < *count; place++) {
        const struct process *process = &device->processes[place];
        samples[place] = (struct nvml_process_sample){process->pid, stamp, process->sm_percent,
            process->memory_percent, process->encoder_percent, process->decoder_percent};
    }
    return SUCCESS;
})
