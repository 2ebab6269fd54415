/* What the fake accelerators are doing right now.

   One `struct scenario` lives in a file that the test and every process using a fake library map
   shared: a value that a test writes is what the next driver call answers, in whatever process.
   The file's path is in the environment variable FAKE_ACCELERATORS.

   scenario.py reads this header and builds the ctypes mirror from it, so members are written in a
   small part of C: one member a line, fixed-width types, `double`, `char name[N]`, structs of this
   file, arrays with up to two sizes. UNSUPPORTED in a number makes its call answer NOT_SUPPORTED. */
#ifndef SCENARIO_H
#define SCENARIO_H

#include <stdint.h>

#define MAGIC 0x5656414b
#define DEVICE_LIMIT 16
#define COLUMN_LIMIT 17
#define FUNCTION_LIMIT 192
#define PROCESS_LIMIT 32
#define EVENT_LIMIT 256
#define FIELD_FAULT_LIMIT 32
#define UNSUPPORTED INT32_MIN
#define UNSUPPORTED_LONG INT64_MIN

/* A counter grows by per_second since since_nanoseconds (monotonic clock). The sequence is odd
   while a writer is at work on it. */
struct counter {
    uint32_t sequence;
    int32_t supported;
    double base;
    double per_second;
    int64_t since_nanoseconds;
};

/* A load is high_percent for the first `duty` of each period (periods begin at multiples of the
   period since the clock's zero) and low_percent for the rest; an idle one leaves no samples. */
struct load {
    int32_t idle;
    int32_t high_percent;
    int32_t low_percent;
    int32_t reserved;
    double duty;
    int64_t period_microseconds;
};

/* kind: 0 compute, 1 graphics, 2 MPS. */
struct process {
    uint32_t pid;
    int32_t kind;
    int64_t memory_bytes;
    int32_t sm_percent;
    int32_t memory_percent;
    int32_t encoder_percent;
    int32_t decoder_percent;
};

/* nvlink_error_fields: which field values report errors of NVLinks. 0: the totals (38, 45, 52, 59),
   whatever their scope. 1: the totals, of the link that is their scope. 2: 161 to 163, of the link
   that is their scope. 3: only 215, likewise. The errors are spread over the links. */
struct device {
    int32_t present;
    uint32_t generation;
    int32_t lost;
    int32_t hidden;
    uint32_t delay_microseconds;
    int32_t delay_spins;
    char name[96];
    char uuid[96];
    char serial[32];
    char bus_id[32];
    char vbios_version[32];
    char operation_status[32];
    int32_t minor_number;
    int32_t module_id;
    uint32_t pci_device_id;
    uint32_t pci_subsystem_id;
    int32_t brand;
    int32_t architecture;
    int32_t compute_capability_major;
    int32_t compute_capability_minor;
    struct load load;
    struct load load_before;
    struct load memory_load;
    struct load memory_load_before;
    int64_t load_since_microseconds;
    int64_t memory_load_since_microseconds;
    int64_t sample_period_microseconds;
    int32_t sample_depth;
    int32_t sample_clock_is_boottime;
    int32_t encoder_utilization;
    int32_t decoder_utilization;
    int64_t memory_total_bytes;
    int64_t memory_reserved_bytes;
    int64_t memory_used_bytes;
    int64_t bar1_total_bytes;
    int64_t bar1_used_bytes;
    int32_t temperature;
    int32_t memory_temperature;
    int32_t board_temperature;
    int32_t shutdown_threshold;
    int32_t slowdown_threshold;
    int32_t memory_maximum_threshold;
    int32_t maximum_operating_threshold;
    int32_t target_temperature;
    int32_t shutdown_margin;
    int32_t slowdown_margin;
    int32_t memory_maximum_margin;
    int32_t maximum_operating_margin;
    int32_t power_milliwatts;
    int32_t instant_power_milliwatts;
    int32_t power_limit_milliwatts;
    int32_t default_power_limit_milliwatts;
    int32_t minimum_power_limit_milliwatts;
    int32_t maximum_power_limit_milliwatts;
    struct counter energy_millijoules;
    int32_t performance_state;
    int32_t soc_clock;
    int32_t maximum_soc_clock;
    int32_t graphics_clock;
    int32_t sm_clock;
    int32_t memory_clock;
    int32_t video_clock;
    int32_t maximum_graphics_clock;
    int32_t maximum_sm_clock;
    int32_t maximum_memory_clock;
    int32_t maximum_video_clock;
    int32_t persistence_mode;
    int64_t throttle_reasons;
    int64_t supported_throttle_reasons;
    struct counter power_cap_nanoseconds;
    struct counter thermal_nanoseconds;
    struct counter sync_boost_nanoseconds;
    struct counter board_limit_nanoseconds;
    struct counter low_utilization_nanoseconds;
    struct counter reliability_nanoseconds;
    struct counter software_thermal_nanoseconds;
    struct counter hardware_thermal_nanoseconds;
    struct counter power_brake_nanoseconds;
    int32_t pcie_generation;
    int32_t maximum_pcie_generation;
    int32_t pcie_width;
    int32_t maximum_pcie_width;
    int32_t pcie_replays;
    int32_t pcie_counter_bits;
    struct counter pcie_transmit_bytes;
    struct counter pcie_receive_bytes;
    int32_t ecc_enabled;
    int32_t ecc_pending;
    int64_t corrected_volatile_errors;
    int64_t uncorrected_volatile_errors;
    int64_t corrected_aggregate_errors;
    int64_t uncorrected_aggregate_errors;
    int32_t corrected_remapped_rows;
    int32_t uncorrected_remapped_rows;
    int32_t remapping_pending;
    int32_t remapping_failed;
    int32_t full_spare_banks;
    int32_t high_spare_banks;
    int32_t partial_spare_banks;
    int32_t low_spare_banks;
    int32_t no_spare_banks;
    int32_t corrected_retired_pages;
    int32_t uncorrected_retired_pages;
    int32_t retirement_pending;
    int32_t nvlink_count;
    int32_t nvlink_version;
    uint64_t nvlink_down_mask;
    int64_t nvlink_crc_flit_errors;
    int64_t nvlink_crc_data_errors;
    int64_t nvlink_replay_errors;
    int64_t nvlink_recovery_errors;
    int32_t nvlink_error_fields;
    int32_t nvlink_sleep_mask;
    struct counter nvlink_transmit_kib;
    struct counter nvlink_receive_kib;
    int32_t recovery_action;
    int32_t fan_count;
    int32_t fan_percent;
    int32_t compute_mode;
    int32_t display_active;
    int32_t display_mode;
    int32_t mig_mode;
    int32_t accounting_mode;
    int64_t supported_event_types;
    int32_t process_count;
    int32_t port_count;
    uint64_t external_port_mask;
    uint64_t port_down_mask;
    struct process processes[PROCESS_LIMIT];
};

/* process_entry_bytes: of the third version of the process lists; 0 for 24, and 32 for some drivers
   of release 535.

   loss_comes: when a wait for events says that a device of the set is lost. 0: once the set has no
   event left; 1: also once before that; 2: always, so that no event comes out of the set.

   hl_smi_prints: what other versions of hl-smi print, added up. 1: a header in spite of noheader;
   2: units in spite of nounits; 4: the table for people, whatever was asked for; 8: a remark first.

   epoch grows with each load of the driver. A process keeps the library_version it found on disk
   when it loaded the library; where that is not kernel_version, every call answers a mismatch. */
struct driver {
    int32_t loaded;
    uint32_t epoch;
    uint32_t kernel_version;
    uint32_t library_version;
    int32_t unloaded_code;
    int32_t cuda_version;
    int32_t added_seen_at_once;
    int32_t process_entry_bytes;
    int32_t loss_comes;
    int32_t hl_smi_prints;
    char version[96];
    char library_version_text[96];
    struct device devices[DEVICE_LIMIT];
};

struct event {
    int32_t vendor;
    int32_t device;
    uint64_t generation;
    uint64_t type;
    uint64_t data;
};

/* hang_milliseconds: what each call waits; -1 until it is set back to 0. */
struct fault {
    int32_t code;
    int32_t hang_milliseconds;
};

/* device: -1 for all. */
struct field_fault {
    int32_t field;
    int32_t device;
    int32_t code;
};

/* wakes grows, and waiters on it are woken, with each change that a waiting call must notice.

   The columns of calls and faults: 0 for calls without a device (in faults: for every device),
   1 + slot for those with one. */
struct scenario {
    uint32_t magic;
    uint32_t size;
    int32_t faults_used;
    int32_t field_fault_count;
    int32_t clock_stopped;
    uint32_t wakes;
    int64_t stopped_monotonic_nanoseconds;
    int64_t stopped_realtime_microseconds;
    struct driver nvidia;
    struct driver habana;
    uint64_t event_count;
    struct event events[EVENT_LIMIT];
    struct field_fault field_faults[FIELD_FAULT_LIMIT];
    struct fault faults[FUNCTION_LIMIT][COLUMN_LIMIT];
    uint64_t calls[FUNCTION_LIMIT][COLUMN_LIMIT];
};

#endif
