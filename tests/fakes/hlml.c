/* libhlml.so: what pyhlml calls, with a Gaudi's gaps (clocks but the SoC's, sensors but two, fans,
   persistence). A second hlml_init succeeds; hlml_shutdown ends it whatever the number. */
#include "engine.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const enum vendor vendor = HABANA;

typedef const struct handle *hlml_device_t;

struct hlml_utilization { unsigned aip, memory; };
struct hlml_memory { uint64_t free, total, used; };
struct hlml_violation { uint64_t reference_microseconds, violation_nanoseconds; };
struct hlml_pci {
    unsigned bus;
    char bus_id[19];
    unsigned device, domain, pci_device_id;
    char link_speed[10], link_width[10], link_max_speed[10], link_max_width[10];
    unsigned revision, subsystem;
};
struct hlml_pcb { char version[32], assembly_version[32]; };
struct hlml_row { uint8_t hbm, pc, sid, bank; uint16_t row; };
struct hlml_mac { uint8_t address[6]; int id; };
struct hlml_event { hlml_device_t device; uint64_t type; };

_Static_assert(sizeof(struct hlml_pci) == 84, "c_hlml_pci_info");

#define PARAMETERS(...) , __VA_ARGS__

/* A call about one device; its body comes last and sees `device`, a working one. */
#define DEVICE_CALL(function, parameters, ...)                             \
    EXPORT int function(hlml_device_t handle PARAMETERS parameters)        \
    {                                                                      \
        struct device *device;                                             \
        int gate = enter_device(FN_##function, handle, &device);           \
        if (gate != SUCCESS)                                               \
            return gate;                                                   \
        __VA_ARGS__                                                        \
    }

#define NUMBER_CALL(function, member) \
    DEVICE_CALL(function, (unsigned *value), return give_unsigned(device->member, value);)
#define TEXT_CALL(function, text) \
    DEVICE_CALL(function, (char *buffer, unsigned size), (void)device; return give_text(text, buffer, size);)
#define UNSUPPORTED_CALL(function) \
    DEVICE_CALL(function, (void *value), (void)device; (void)value; return NOT_SUPPORTED;)

/* ---- start, stop and the system ---- */

EXPORT int hlml_init(void) { return start_library(FN_hlml_init); }

EXPORT int hlml_init_with_flags(unsigned flags)
{
    (void)flags;
    return start_library(FN_hlml_init_with_flags);
}

EXPORT int hlml_shutdown(void) { return stop_library(FN_hlml_shutdown, 1); }

EXPORT int hlml_get_hlml_version(char *buffer, unsigned size)
{
    int gate = enter(FN_hlml_get_hlml_version);
    return gate ? gate : give_text(driver()->library_version_text, buffer, size);
}

EXPORT int hlml_get_driver_version(char *buffer, unsigned size)
{
    int gate = enter(FN_hlml_get_driver_version);
    return gate ? gate : give_text(driver()->version, buffer, size);
}

EXPORT int hlml_get_nic_driver_version(char *buffer, unsigned size)
{
    int gate = enter(FN_hlml_get_nic_driver_version);
    return gate ? gate : give_text(driver()->version, buffer, size);
}

/* ---- handles ---- */

EXPORT int hlml_device_get_count(unsigned *count)
{
    int gate = enter(FN_hlml_device_get_count);
    return gate ? gate : give_unsigned(visible_count(), count);
}

EXPORT int hlml_device_get_handle_by_index(unsigned index, hlml_device_t *handle)
{
    return give_handle(FN_hlml_device_get_handle_by_index, visible_handle((int)index), INVALID_ARGUMENT, handle);
}

EXPORT int hlml_device_get_handle_by_UUID(const char *uuid, hlml_device_t *handle)
{
    return give_handle(FN_hlml_device_get_handle_by_UUID, find_handle(uuid, has_uuid), NOT_FOUND, handle);
}

/* The domain may be left out. */
static int has_bus_id(const struct device *device, const char *asked)
{
    const char *after_domain = strchr(device->bus_id, ':');
    return strcasecmp(device->bus_id, asked) == 0 || (after_domain && strcasecmp(after_domain + 1, asked) == 0);
}

EXPORT int hlml_device_get_handle_by_pci_bus_id(const char *bus_id, hlml_device_t *handle)
{
    return give_handle(FN_hlml_device_get_handle_by_pci_bus_id, find_handle(bus_id, has_bus_id), NOT_FOUND, handle);
}

/* ---- identity ---- */

TEXT_CALL(hlml_device_get_name, device->name)
TEXT_CALL(hlml_device_get_uuid, device->uuid)
TEXT_CALL(hlml_device_get_serial, device->serial)
TEXT_CALL(hlml_get_model_number, device->name)
TEXT_CALL(hlml_get_firmware_fit_version, "Linux gaudi3 5.10.18-hl-gaudi3-1.22.1-fw-61.4.2-sec-10")
TEXT_CALL(hlml_get_firmware_spi_version, "Preboot version hl-gaudi3-1.22.1-fw-61.4.2-sec-10")
TEXT_CALL(hlml_get_fw_boot_version, "")
TEXT_CALL(hlml_get_fw_os_version, "")
TEXT_CALL(hlml_get_cpld_version, "0x0000000f")
TEXT_CALL(hlml_device_get_oper_status, device->operation_status)
NUMBER_CALL(hlml_device_get_minor_number, minor_number)
NUMBER_CALL(hlml_device_get_module_id, module_id)
NUMBER_CALL(hlml_device_get_board_id, module_id)
UNSUPPORTED_CALL(hlml_device_get_hl_revision)

DEVICE_CALL(hlml_device_get_pcb_info, (struct hlml_pcb *pcb), {
    (void)device;
    *pcb = (struct hlml_pcb){"R1B", "V1A"};
    return SUCCESS;
})

static const char *link_speed(int generation)
{
    static const char *const speeds[] = {"Unknown", "2.5GT/s", "5.0GT/s", "8.0GT/s", "16.0GT/s", "32.0GT/s"};
    return generation > 0 && generation < 6 ? speeds[generation] : speeds[0];
}

DEVICE_CALL(hlml_device_get_pci_info, (struct hlml_pci *pci), {
    memset(pci, 0, sizeof *pci);
    sscanf(device->bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%.18s", device->bus_id);
    snprintf(pci->link_speed, sizeof pci->link_speed, "%s", link_speed(device->pcie_generation));
    snprintf(pci->link_max_speed, sizeof pci->link_max_speed, "%s", link_speed(device->maximum_pcie_generation));
    snprintf(pci->link_width, sizeof pci->link_width, "x%d", device->pcie_width % 100);
    snprintf(pci->link_max_width, sizeof pci->link_max_width, "x%d", device->maximum_pcie_width % 100);
    pci->pci_device_id = 0x10601da3;
    pci->revision = 1;
    return SUCCESS;
})

/* ---- gauges and counters ---- */

DEVICE_CALL(hlml_device_get_utilization_rates, (struct hlml_utilization *rates), {
    rates->aip = current_percent(device, 0);
    rates->memory = current_percent(device, 1);
    return SUCCESS;
})

DEVICE_CALL(hlml_device_get_process_utilization, (unsigned *percent), {
    *percent = current_percent(device, 0);
    return SUCCESS;
})

DEVICE_CALL(hlml_device_get_memory_info, (struct hlml_memory *memory), {
    memory->total = device->memory_total_bytes;
    memory->used = device->memory_used_bytes;
    memory->free = memory->total - memory->used;
    return SUCCESS;
})

DEVICE_CALL(hlml_device_get_temperature, (unsigned sensor, unsigned *celsius), {
    switch (sensor) {
    case 0: return give_unsigned(device->temperature, celsius);
    case 1: return give_unsigned(device->board_temperature, celsius);
    default: return sensor < 6 ? NOT_SUPPORTED : INVALID_ARGUMENT;
    }
})

DEVICE_CALL(hlml_device_get_temperature_threshold, (unsigned threshold, unsigned *celsius), {
    const int32_t thresholds[] = {device->shutdown_threshold, device->slowdown_threshold,
        device->memory_maximum_threshold, device->maximum_operating_threshold};
    return threshold < 4 ? give_unsigned(thresholds[threshold], celsius) : INVALID_ARGUMENT;
})

UNSUPPORTED_CALL(hlml_device_get_persistence_mode)
UNSUPPORTED_CALL(hlml_device_get_supported_performance_states)
NUMBER_CALL(hlml_device_get_performance_state, performance_state)

NUMBER_CALL(hlml_device_get_power_usage, power_milliwatts)
UNSUPPORTED_CALL(hlml_device_get_power_management_mode)
NUMBER_CALL(hlml_device_get_power_management_limit, power_limit_milliwatts)
NUMBER_CALL(hlml_device_get_power_management_default_limit, default_power_limit_milliwatts)

DEVICE_CALL(hlml_device_get_power_management_limit_constraints, (unsigned *minimum, unsigned *maximum), {
    int status = give_unsigned(device->minimum_power_limit_milliwatts, minimum);
    return status ? status : give_unsigned(device->maximum_power_limit_milliwatts, maximum);
})

DEVICE_CALL(hlml_device_set_power_management_limit, (unsigned limit), {
    (void)device;
    (void)limit;
    return 4; /* no permission: a reader may not set it */
})

DEVICE_CALL(hlml_device_get_total_energy_consumption, (uint64_t *millijoules), {
    return give_counter(&device->energy_millijoules, millijoules);
})

static int give_clock(int32_t soc_clock, unsigned clock, unsigned *megahertz)
{
    if (clock == 0)
        return give_unsigned(soc_clock, megahertz);
    return clock < 4 ? NOT_SUPPORTED : INVALID_ARGUMENT;
}

DEVICE_CALL(hlml_device_get_clock_info, (unsigned clock, unsigned *megahertz), {
    return give_clock(device->soc_clock, clock, megahertz);
})

DEVICE_CALL(hlml_device_get_max_clock_info, (unsigned clock, unsigned *megahertz), {
    return give_clock(device->maximum_soc_clock, clock, megahertz);
})

DEVICE_CALL(hlml_device_get_clock_limit_info, (unsigned clock, unsigned *megahertz), {
    return give_clock(device->maximum_soc_clock, clock, megahertz);
})

DEVICE_CALL(hlml_device_get_current_clocks_throttle_reasons, (uint64_t *reasons), {
    return give_long(device->throttle_reasons, reasons);
})

DEVICE_CALL(hlml_device_get_violation_status, (unsigned policy, struct hlml_violation *violation), {
    if (policy > 1)
        return INVALID_ARGUMENT;
    violation->reference_microseconds = realtime_microseconds();
    return give_counter(policy == 0 ? &device->power_cap_nanoseconds : &device->thermal_nanoseconds,
                        &violation->violation_nanoseconds);
})

/* ---- errors ---- */

DEVICE_CALL(hlml_device_get_ecc_mode, (unsigned *current, unsigned *pending), {
    int status = give_unsigned(device->ecc_enabled, current);
    return status ? status : give_unsigned(device->ecc_pending, pending);
})

static int give_ecc(const struct device *device, unsigned type, unsigned counter, uint64_t *count)
{
    const int64_t errors[2][2] = {{device->corrected_volatile_errors, device->corrected_aggregate_errors},
        {device->uncorrected_volatile_errors, device->uncorrected_aggregate_errors}};
    return type > 1 || counter > 1 ? INVALID_ARGUMENT : give_long(errors[type][counter], count);
}

DEVICE_CALL(hlml_device_get_total_ecc_errors, (unsigned type, unsigned counter, uint64_t *count), {
    return give_ecc(device, type, counter, count);
})

/* All errors are in DRAM (1), none in SRAM (0). */
DEVICE_CALL(hlml_device_get_memory_error_counter, (unsigned type, unsigned counter, unsigned location, uint64_t *count), {
    int status = location > 2 ? INVALID_ARGUMENT : give_ecc(device, type, counter, count);
    if (status == SUCCESS && location == 0)
        *count = 0;
    return status;
})

DEVICE_CALL(hlml_device_get_replaced_rows, (unsigned cause, unsigned *count, struct hlml_row *rows), {
    if (cause > 1)
        return INVALID_ARGUMENT;
    int32_t replaced = cause == 0 ? device->corrected_remapped_rows : device->uncorrected_remapped_rows;
    unsigned room = *count;
    int status = give_unsigned(replaced, count);
    if (status != SUCCESS || rows == NULL)
        return status;
    if (room < *count)
        return INSUFFICIENT_SIZE;
    for (unsigned place = 0; place < *count; place++)
        rows[place] = (struct hlml_row){0, 0, 0, 0, (uint16_t)(place + 1)};
    return SUCCESS;
})

NUMBER_CALL(hlml_device_get_replaced_rows_pending_status, remapping_pending)

/* ---- links ---- */

/* The driver measures during the call; what the unit is, no public source settles. */
DEVICE_CALL(hlml_device_get_pcie_throughput, (unsigned direction, unsigned *value), {
    if (direction > 1)
        return INVALID_ARGUMENT;
    wait_microseconds(25000);
    const struct counter *counter = direction == 0 ? &device->pcie_transmit_bytes : &device->pcie_receive_bytes;
    *value = (unsigned)(counter->per_second / 1024);
    return SUCCESS;
})

NUMBER_CALL(hlml_device_get_pcie_replay_counter, pcie_replays)
NUMBER_CALL(hlml_device_get_curr_pcie_link_generation, pcie_generation)
NUMBER_CALL(hlml_device_get_curr_pcie_link_width, pcie_width)

DEVICE_CALL(hlml_device_get_mac_info, (struct hlml_mac *list, unsigned room, unsigned first, int *count), {
    *count = 0;
    for (unsigned port = first; port < (unsigned)device->port_count && *count < (int)room; port++) {
        struct hlml_mac mac = {{0xb0, 0xfd, 0x0b, 0xd8, (uint8_t)handle->slot, (uint8_t)port}, (int)port};
        list[(*count)++] = mac;
    }
    return SUCCESS;
})

DEVICE_CALL(hlml_get_mac_addr_info, (uint64_t *mask, uint64_t *external), {
    mask[0] = (UINT64_C(1) << device->port_count) - 1;
    external[0] = device->external_port_mask;
    mask[1] = external[1] = 0;
    return SUCCESS;
})

DEVICE_CALL(hlml_nic_get_link, (unsigned port, _Bool *up), {
    if (port >= (unsigned)device->port_count)
        return INVALID_ARGUMENT;
    *up = !(device->port_down_mask >> port & 1);
    return SUCCESS;
})

UNSUPPORTED_CALL(hlml_nic_get_statistics)

/* ---- events ---- */

EXPORT int hlml_event_set_create(struct event_set **set) { return create_set(FN_hlml_event_set_create, set); }
EXPORT int hlml_event_set_free(struct event_set *set) { return free_set(FN_hlml_event_set_free, set); }

DEVICE_CALL(hlml_device_register_events, (unsigned types, struct event_set *set), {
    (void)device;
    return register_events(handle, types, set);
})

EXPORT int hlml_event_set_wait(struct event_set *set, struct hlml_event *data, unsigned timeout_milliseconds)
{
    struct event event;
    hlml_device_t device;
    int status = wait_for_event(FN_hlml_event_set_wait, set, timeout_milliseconds, &device, &event);
    if (status == SUCCESS)
        *data = (struct hlml_event){device, event.type};
    return status;
}
