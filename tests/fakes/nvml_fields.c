/* libnvidia-ml.so.1: nvmlDeviceGetFieldValues. */
#include "nvml.h"

#define ALL_LINKS UINT32_MAX

static int field_unsigned(struct nvml_field *field, int32_t number)
{
    field->value_type = UNSIGNED_INT;
    return give_unsigned(number, &field->value.uiVal);
}

static int field_signed(struct nvml_field *field, int32_t number)
{
    field->value_type = SIGNED_INT;
    return give_unsigned(number, (unsigned *)&field->value.siVal);
}

static int field_long(struct nvml_field *field, int64_t number)
{
    uint64_t value;
    int status = give_long(number, &value);
    field->value_type = UNSIGNED_LONG_LONG;
    if (status == SUCCESS)
        field->value.ullVal = value;
    return status;
}

static int field_counter(struct nvml_field *field, const struct counter *counter)
{
    uint64_t value;
    int status = give_counter(counter, &value);
    field->value_type = UNSIGNED_LONG_LONG;
    if (status == SUCCESS)
        field->value.ullVal = value;
    return status;
}

static int field_ecc(struct nvml_field *field, const struct device *device, int64_t errors)
{
    return device->ecc_enabled == 1 ? field_long(field, errors) : NOT_SUPPORTED;
}

enum error_fields { TOTALS = 0, LINKS_OF_TOTALS = 1, DATA_LINKS = 2, RECOVERIES = 3 };

static int field_link_total(struct nvml_field *field, const struct device *device, int64_t number)
{
    if (device->nvlink_count == 0 || device->nvlink_error_fields > LINKS_OF_TOTALS)
        return NOT_SUPPORTED;
    if (device->nvlink_error_fields == TOTALS)
        return field_long(field, number);
    if (field->scope >= (unsigned)device->nvlink_count)
        return INVALID_ARGUMENT;
    return field_long(field, link_share(device, field->scope, number));
}

static int field_link(struct nvml_field *field, const struct device *device, int64_t number, enum error_fields fields)
{
    if (device->nvlink_count == 0 || device->nvlink_error_fields != (int32_t)fields)
        return NOT_SUPPORTED;
    if (field->scope >= (unsigned)device->nvlink_count)
        return INVALID_ARGUMENT;
    return field_long(field, link_share(device, field->scope, number));
}

/* One link carries an equal share of the sum; `overhead` adds the protocol's eighth. */
static int field_link_traffic(struct nvml_field *field, const struct device *device,
                              const struct counter *counter, int overhead)
{
    if (device->nvlink_count == 0)
        return NOT_SUPPORTED;
    if (field->scope != ALL_LINKS && field->scope >= (unsigned)device->nvlink_count)
        return INVALID_ARGUMENT;
    int status = field_counter(field, counter);
    if (status != SUCCESS)
        return status;
    if (field->scope != ALL_LINKS)
        field->value.ullVal /= (unsigned)device->nvlink_count;
    if (overhead)
        field->value.ullVal += field->value.ullVal / 8;
    return SUCCESS;
}

static int field_pcie_bytes(struct nvml_field *field, const struct device *device, const struct counter *counter)
{
    int status = field_counter(field, counter);
    if (status == SUCCESS && device->pcie_counter_bits < 64)
        field->value.ullVal &= (UINT64_C(1) << device->pcie_counter_bits) - 1;
    return status;
}

/* Scope 0 is the GPU; the module and the memory (1, 2) are not told apart here. */
static int field_power(struct nvml_field *field, int32_t milliwatts)
{
    return field->scope == 0 ? field_unsigned(field, milliwatts) : NOT_SUPPORTED;
}

static int fill(struct nvml_field *field, const struct device *device)
{
    switch (field->id) {
    case 1: return field_unsigned(field, device->ecc_enabled);
    case 2: return field_unsigned(field, device->ecc_pending);
    case 3: return field_ecc(field, device, device->corrected_volatile_errors);
    case 4: return field_ecc(field, device, device->uncorrected_volatile_errors);
    case 5: return field_ecc(field, device, device->corrected_aggregate_errors);
    case 6: return field_ecc(field, device, device->uncorrected_aggregate_errors);
    case 29: return field_unsigned(field, device->corrected_retired_pages);
    case 30: return field_unsigned(field, device->uncorrected_retired_pages);
    case 31: return field_unsigned(field, device->retirement_pending);
    case 38: return field_link_total(field, device, device->nvlink_crc_flit_errors);
    case 45: return field_link_total(field, device, device->nvlink_crc_data_errors);
    case 52: return field_link_total(field, device, device->nvlink_replay_errors);
    case 59: return field_link_total(field, device, device->nvlink_recovery_errors);
    case 74: return field_counter(field, &device->power_cap_nanoseconds);
    case 75: return field_counter(field, &device->thermal_nanoseconds);
    case 76: return field_counter(field, &device->sync_boost_nanoseconds);
    case 77: return field_counter(field, &device->board_limit_nanoseconds);
    case 78: return field_counter(field, &device->low_utilization_nanoseconds);
    case 79: return field_counter(field, &device->reliability_nanoseconds);
    case 82: return field_unsigned(field, device->memory_temperature);
    case 83:
    case 191: return field_counter(field, &device->energy_millijoules);
    case 91: return field_unsigned(field, device->nvlink_count);
    case 94: return field_unsigned(field, device->pcie_replays);
    case 138: return field_link_traffic(field, device, &device->nvlink_transmit_kib, 0);
    case 139: return field_link_traffic(field, device, &device->nvlink_receive_kib, 0);
    case 140: return field_link_traffic(field, device, &device->nvlink_transmit_kib, 1);
    case 141: return field_link_traffic(field, device, &device->nvlink_receive_kib, 1);
    case 142: return field_unsigned(field, device->corrected_remapped_rows);
    case 143: return field_unsigned(field, device->uncorrected_remapped_rows);
    case 144: return field_unsigned(field, device->remapping_pending);
    case 145: return field_unsigned(field, device->remapping_failed);
    case 161: return field_link(field, device, device->nvlink_replay_errors, DATA_LINKS);
    case 162: return field_link(field, device, device->nvlink_recovery_errors, DATA_LINKS);
    case 163: return field_link(field, device, device->nvlink_crc_flit_errors + device->nvlink_crc_data_errors, DATA_LINKS);
    case 185: return field_power(field, device->power_milliwatts);
    case 186: return field_power(field, device->instant_power_milliwatts);
    case 187: return field_power(field, device->minimum_power_limit_milliwatts);
    case 188: return field_power(field, device->maximum_power_limit_milliwatts);
    case 189: return field_power(field, device->default_power_limit_milliwatts);
    case 190:
    case 192: return field_power(field, device->power_limit_milliwatts);
    case 193: return field_signed(field, device->shutdown_margin);
    case 194: return field_signed(field, device->slowdown_margin);
    case 195: return field_signed(field, device->memory_maximum_margin);
    case 196: return field_signed(field, device->maximum_operating_margin);
    case 197: return field_pcie_bytes(field, device, &device->pcie_transmit_bytes);
    case 198: return field_pcie_bytes(field, device, &device->pcie_receive_bytes);
    case 215: return field_link(field, device, device->nvlink_recovery_errors, RECOVERIES);
    case 230: return field_unsigned(field, device->recovery_action);
    case 269: return field_counter(field, &device->software_thermal_nanoseconds);
    case 270: return field_counter(field, &device->hardware_thermal_nanoseconds);
    case 271: return field_counter(field, &device->power_brake_nanoseconds);
    default: return NOT_SUPPORTED;
    }
}

static int field_fault(unsigned id, int slot)
{
    const struct scenario *now = scenario();
    for (int place = 0; place < now->field_fault_count; place++) {
        const struct field_fault *fault = &now->field_faults[place];
        if (fault->field == (int)id && (fault->device == -1 || fault->device == slot))
            return fault->code;
    }
    return SUCCESS;
}

DEVICE_CALL(nvmlDeviceGetFieldValues, (int count, struct nvml_field *fields), {
    if (count < 1 || fields == NULL)
        return INVALID_ARGUMENT;
    int64_t now = realtime_microseconds();
    for (int place = 0; place < count; place++) {
        int fault = field_fault(fields[place].id, handle->slot);
        fields[place].timestamp = now;
        fields[place].latency_microseconds = 0;
        fields[place].status = fault ? fault : fill(&fields[place], device);
    }
    return SUCCESS;
})
