/* libnvidia-ml.so.1: calls that answer one moment's value. */
#include "nvml.h"

/* ---- load and memory ---- */

DEVICE_CALL(nvmlDeviceGetUtilizationRates, (struct nvml_utilization *rates), {
    if (device->mig_mode == 1)
        return NOT_SUPPORTED;
    rates->gpu = current_percent(device, 0);
    rates->memory = current_percent(device, 1);
    return SUCCESS;
})

static int give_engine(const struct device *device, int32_t percent, unsigned *value, unsigned *period)
{
    *period = (unsigned)device->sample_period_microseconds;
    return device->mig_mode == 1 ? NOT_SUPPORTED : give_unsigned(percent, value);
}

DEVICE_CALL(nvmlDeviceGetEncoderUtilization, (unsigned *value, unsigned *period), {
    return give_engine(device, device->encoder_utilization, value, period);
})

DEVICE_CALL(nvmlDeviceGetDecoderUtilization, (unsigned *value, unsigned *period), {
    return give_engine(device, device->decoder_utilization, value, period);
})

/* The first version counts what the driver reserves as used. */
DEVICE_CALL(nvmlDeviceGetMemoryInfo, (struct nvml_memory *memory), {
    memory->total = device->memory_total_bytes;
    memory->used = device->memory_used_bytes + device->memory_reserved_bytes;
    memory->free = memory->total - memory->used;
    return SUCCESS;
})

DEVICE_CALL(nvmlDeviceGetMemoryInfo_v2, (struct nvml_memory_v2 *memory), {
    if (memory->version != VERSIONED(struct nvml_memory_v2, 2))
        return VERSION_MISMATCH;
    memory->total = device->memory_total_bytes;
    memory->reserved = device->memory_reserved_bytes;
    memory->used = device->memory_used_bytes;
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
})

DEVICE_CALL(nvmlDeviceGetBAR1MemoryInfo, (struct nvml_bar1 *memory), {
    memory->total = device->bar1_total_bytes;
    memory->used = device->bar1_used_bytes;
    memory->free = memory->total - memory->used;
    return SUCCESS;
})

/* ---- power ---- */

NUMBER_CALL(nvmlDeviceGetPowerUsage, power_milliwatts)
NUMBER_CALL(nvmlDeviceGetEnforcedPowerLimit, power_limit_milliwatts)
NUMBER_CALL(nvmlDeviceGetPowerManagementLimit, power_limit_milliwatts)
NUMBER_CALL(nvmlDeviceGetPowerManagementDefaultLimit, default_power_limit_milliwatts)

DEVICE_CALL(nvmlDeviceGetPowerManagementLimitConstraints, (unsigned *minimum, unsigned *maximum), {
    int status = give_unsigned(device->minimum_power_limit_milliwatts, minimum);
    return status ? status : give_unsigned(device->maximum_power_limit_milliwatts, maximum);
})

DEVICE_CALL(nvmlDeviceGetTotalEnergyConsumption, (uint64_t *energy), {
    return give_counter(&device->energy_millijoules, energy);
})

/* ---- temperature ---- */

DEVICE_CALL(nvmlDeviceGetTemperature, (unsigned sensor, unsigned *temperature), {
    return sensor != 0 ? INVALID_ARGUMENT : give_unsigned(device->temperature, temperature);
})

DEVICE_CALL(nvmlDeviceGetTemperatureV, (struct nvml_temperature *temperature), {
    if (temperature->version != VERSIONED(struct nvml_temperature, 1))
        return VERSION_MISMATCH;
    if (temperature->sensor != 0)
        return INVALID_ARGUMENT;
    return give_unsigned(device->temperature, (unsigned *)&temperature->temperature);
})

DEVICE_CALL(nvmlDeviceGetTemperatureThreshold, (unsigned threshold, unsigned *temperature), {
    switch (threshold) {
    case 0: return give_unsigned(device->shutdown_threshold, temperature);
    case 1: return give_unsigned(device->slowdown_threshold, temperature);
    case 2: return give_unsigned(device->memory_maximum_threshold, temperature);
    case 3: return give_unsigned(device->maximum_operating_threshold, temperature);
    default: return threshold < 8 ? NOT_SUPPORTED : INVALID_ARGUMENT;
    }
})

DEVICE_CALL(nvmlDeviceGetMarginTemperature, (struct nvml_margin *margin), {
    if (margin->version != VERSIONED(struct nvml_margin, 1))
        return VERSION_MISMATCH;
    if (device->target_temperature == UNSUPPORTED || device->temperature == UNSUPPORTED)
        return NOT_SUPPORTED;
    margin->margin = device->target_temperature - device->temperature;
    return SUCCESS;
})

/* ---- clocks ---- */

NUMBER_CALL(nvmlDeviceGetPerformanceState, performance_state)
NUMBER_CALL(nvmlDeviceGetPersistenceMode, persistence_mode)

DEVICE_CALL(nvmlDeviceGetClockInfo, (unsigned clock, unsigned *megahertz), {
    const int32_t clocks[] = {device->graphics_clock, device->sm_clock, device->memory_clock, device->video_clock};
    return clock < 4 ? give_unsigned(clocks[clock], megahertz) : INVALID_ARGUMENT;
})

static int give_maximum_clock(const struct device *device, unsigned clock, unsigned *megahertz)
{
    const int32_t clocks[] = {device->maximum_graphics_clock, device->maximum_sm_clock,
        device->maximum_memory_clock, device->maximum_video_clock};
    return clock < 4 ? give_unsigned(clocks[clock], megahertz) : INVALID_ARGUMENT;
}

DEVICE_CALL(nvmlDeviceGetMaxClockInfo, (unsigned clock, unsigned *megahertz), {
    return give_maximum_clock(device, clock, megahertz);
})

DEVICE_CALL(nvmlDeviceGetApplicationsClock, (unsigned clock, unsigned *megahertz), {
    return give_maximum_clock(device, clock, megahertz);
})

LONG_CALL(nvmlDeviceGetCurrentClocksThrottleReasons, throttle_reasons)
LONG_CALL(nvmlDeviceGetCurrentClocksEventReasons, throttle_reasons)
LONG_CALL(nvmlDeviceGetSupportedClocksThrottleReasons, supported_throttle_reasons)
LONG_CALL(nvmlDeviceGetSupportedClocksEventReasons, supported_throttle_reasons)

DEVICE_CALL(nvmlDeviceGetViolationStatus, (unsigned policy, struct nvml_violation *violation), {
    const struct counter *const counters[] = {&device->power_cap_nanoseconds, &device->thermal_nanoseconds,
        &device->sync_boost_nanoseconds, &device->board_limit_nanoseconds,
        &device->low_utilization_nanoseconds, &device->reliability_nanoseconds};
    violation->reference_microseconds = realtime_microseconds();
    if (policy == 10 || policy == 11)
        return NOT_SUPPORTED;
    return policy < 6 ? give_counter(counters[policy], &violation->violation_nanoseconds) : INVALID_ARGUMENT;
})

/* ---- PCIe and NVLink ---- */

NUMBER_CALL(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation)
NUMBER_CALL(nvmlDeviceGetMaxPcieLinkGeneration, maximum_pcie_generation)
NUMBER_CALL(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
NUMBER_CALL(nvmlDeviceGetMaxPcieLinkWidth, maximum_pcie_width)
NUMBER_CALL(nvmlDeviceGetPcieReplayCounter, pcie_replays)

/* The driver measures during the call. */
DEVICE_CALL(nvmlDeviceGetPcieThroughput, (unsigned direction, unsigned *kilobytes_per_second), {
    const struct counter *counter = direction == 0 ? &device->pcie_transmit_bytes : &device->pcie_receive_bytes;
    if (direction > 1)
        return INVALID_ARGUMENT;
    wait_microseconds(20000);
    *kilobytes_per_second = (unsigned)(counter->per_second / 1024);
    return SUCCESS;
})

DEVICE_CALL(nvmlDeviceGetNvLinkState, (unsigned link, unsigned *active), {
    if (device->nvlink_count == 0)
        return NOT_SUPPORTED;
    if (link >= (unsigned)device->nvlink_count)
        return INVALID_ARGUMENT;
    unsigned up = !(device->nvlink_down_mask >> link & 1);
    return give_unsigned(up + (up && device->nvlink_sleep_mask >> link & 1), active);
})

DEVICE_CALL(nvmlDeviceGetNvLinkVersion, (unsigned link, unsigned *version), {
    if (device->nvlink_count == 0)
        return NOT_SUPPORTED;
    return link < (unsigned)device->nvlink_count ? give_unsigned(device->nvlink_version, version) : INVALID_ARGUMENT;
})

int64_t link_share(const struct device *device, unsigned link, int64_t errors)
{
    int64_t links = device->nvlink_count;
    if (errors == UNSUPPORTED_LONG)
        return errors;
    return errors / links + (link < errors % links);
}

DEVICE_CALL(nvmlDeviceGetNvLinkErrorCounter, (unsigned link, unsigned counter, uint64_t *value), {
    const int64_t errors[] = {device->nvlink_replay_errors, device->nvlink_recovery_errors,
        device->nvlink_crc_flit_errors, device->nvlink_crc_data_errors};
    if (device->nvlink_count == 0 || counter == 4)
        return NOT_SUPPORTED;
    if (link >= (unsigned)device->nvlink_count || counter > 4)
        return INVALID_ARGUMENT;
    return give_long(link_share(device, link, errors[counter]), value);
})

DEVICE_CALL(nvmlDeviceGetNvLinkUtilizationCounter, (unsigned link, unsigned counter, uint64_t *received, uint64_t *sent), {
    (void)device; (void)link; (void)counter; (void)received; (void)sent;
    return NOT_SUPPORTED;
})

/* ---- errors ---- */

DEVICE_CALL(nvmlDeviceGetEccMode, (unsigned *current, unsigned *pending), {
    int status = give_unsigned(device->ecc_enabled, current);
    return status ? status : give_unsigned(device->ecc_pending, pending);
})

static int give_ecc(const struct device *device, unsigned type, unsigned counter, uint64_t *count)
{
    const int64_t errors[2][2] = {{device->corrected_volatile_errors, device->corrected_aggregate_errors},
        {device->uncorrected_volatile_errors, device->uncorrected_aggregate_errors}};
    if (type > 1 || counter > 1)
        return INVALID_ARGUMENT;
    return device->ecc_enabled == 1 ? give_long(errors[type][counter], count) : NOT_SUPPORTED;
}

DEVICE_CALL(nvmlDeviceGetTotalEccErrors, (unsigned type, unsigned counter, uint64_t *count), {
    return give_ecc(device, type, counter, count);
})

/* All errors are in device memory (2), none in SRAM (7); other places are not told apart. */
DEVICE_CALL(nvmlDeviceGetMemoryErrorCounter, (unsigned type, unsigned counter, unsigned location, uint64_t *count), {
    int status = give_ecc(device, type, counter, count);
    if (status != SUCCESS || location == 2)
        return status;
    *count = 0;
    return location == 7 ? SUCCESS : NOT_SUPPORTED;
})

DEVICE_CALL(nvmlDeviceGetRemappedRows, (unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed), {
    int status = give_unsigned(device->corrected_remapped_rows, corrected);
    if (status != SUCCESS)
        return status;
    *uncorrected = device->uncorrected_remapped_rows;
    *pending = device->remapping_pending;
    *failed = device->remapping_failed;
    return SUCCESS;
})

DEVICE_CALL(nvmlDeviceGetRowRemapperHistogram, (struct nvml_histogram *histogram), {
    if (device->corrected_remapped_rows == UNSUPPORTED)
        return NOT_SUPPORTED;
    *histogram = (struct nvml_histogram){device->full_spare_banks, device->high_spare_banks,
        device->partial_spare_banks, device->low_spare_banks, device->no_spare_banks};
    return SUCCESS;
})

DEVICE_CALL(nvmlDeviceGetRetiredPages, (unsigned cause, unsigned *count, uint64_t *addresses), {
    int32_t pages = cause == 0 ? device->corrected_retired_pages : device->uncorrected_retired_pages;
    if (cause > 1)
        return INVALID_ARGUMENT;
    if (pages == UNSUPPORTED)
        return NOT_SUPPORTED;
    unsigned room = *count;
    *count = (unsigned)pages;
    if (room < (unsigned)pages)
        return INSUFFICIENT_SIZE;
    for (int32_t page = 0; addresses != NULL && page < pages; page++)
        addresses[page] = UINT64_C(0x10000) * (page + 1);
    return SUCCESS;
})

NUMBER_CALL(nvmlDeviceGetRetiredPagesPendingStatus, retirement_pending)

/* ---- the rest ---- */

DEVICE_CALL(nvmlDeviceGetFanSpeed, (unsigned *percent), {
    return device->fan_count == 0 ? NOT_SUPPORTED : give_unsigned(device->fan_percent, percent);
})

DEVICE_CALL(nvmlDeviceGetFanSpeed_v2, (unsigned fan, unsigned *percent), {
    if (device->fan_count == 0)
        return NOT_SUPPORTED;
    return fan < (unsigned)device->fan_count ? give_unsigned(device->fan_percent, percent) : INVALID_ARGUMENT;
})

NUMBER_CALL(nvmlDeviceGetNumFans, fan_count)
NUMBER_CALL(nvmlDeviceGetComputeMode, compute_mode)
NUMBER_CALL(nvmlDeviceGetDisplayActive, display_active)
NUMBER_CALL(nvmlDeviceGetDisplayMode, display_mode)
NUMBER_CALL(nvmlDeviceGetAccountingMode, accounting_mode)
