/* NVML's structures as the bindings lay them out, and short forms of the usual calls. */
#ifndef NVML_H
#define NVML_H

#include "engine.h"

typedef const struct handle *nvmlDevice_t;

/* The version word of NVML's versioned structures. */
#define VERSIONED(type, number) ((unsigned)sizeof(type) | ((unsigned)(number) << 24))

struct nvml_utilization { unsigned gpu, memory; };
struct nvml_memory { uint64_t total, free, used; };
struct nvml_memory_v2 { unsigned version; uint64_t total, reserved, free, used; };
struct nvml_bar1 { uint64_t total, free, used; };
struct nvml_temperature { unsigned version, sensor; int temperature; };
struct nvml_margin { unsigned version; int margin; };
struct nvml_violation { uint64_t reference_microseconds, violation_nanoseconds; };
struct nvml_histogram { unsigned max, high, partial, low, none; };
struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};
union nvml_value {
    double dVal;
    unsigned uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    long long sllVal;
    int siVal;
    unsigned short usVal;
};
enum nvml_value_type { DOUBLE = 0, UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3, SIGNED_INT = 5 };
struct nvml_sample { uint64_t time_stamp; union nvml_value value; };
struct nvml_field {
    unsigned id, scope;
    int64_t timestamp, latency_microseconds;
    unsigned value_type;
    int status;
    union nvml_value value;
};
struct nvml_process { unsigned pid; uint64_t memory; unsigned gpu_instance, compute_instance; };
struct nvml_process_v1 { unsigned pid; uint64_t memory; };
struct nvml_process_r535 { struct nvml_process process; uint64_t protected_memory; };
struct nvml_process_sample { unsigned pid; uint64_t time_stamp; unsigned sm, memory, encoder, decoder; };
struct nvml_event_v1 { nvmlDevice_t device; uint64_t type, data; };
struct nvml_event { nvmlDevice_t device; uint64_t type, data; unsigned gpu_instance, compute_instance; };

_Static_assert(sizeof(struct nvml_memory_v2) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(struct nvml_pci) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(struct nvml_field) == 40, "nvmlFieldValue_t");
_Static_assert(sizeof(struct nvml_process) == 24, "nvmlProcessInfo_v2_t");
_Static_assert(sizeof(struct nvml_process_v1) == 16, "nvmlProcessInfo_v1_t");
_Static_assert(sizeof(struct nvml_process_r535) == 32, "nvmlProcessInfo_t of R535");
_Static_assert(sizeof(struct nvml_process_sample) == 32, "nvmlProcessUtilizationSample_t");
_Static_assert(sizeof(struct nvml_event_v1) == 24, "nvmlEventData_v1_t");
_Static_assert(sizeof(struct nvml_event) == 32, "nvmlEventData_t");

/* The part of a number of errors that one link of a device has. */
int64_t link_share(const struct device *device, unsigned link, int64_t errors);

/* A call about one device; its body comes last and sees `device`, a working one. */
#define DEVICE_CALL(function, parameters, ...)                             \
    EXPORT int function(nvmlDevice_t handle PARAMETERS parameters)         \
    {                                                                      \
        struct device *device;                                             \
        int gate = enter_device(FN_##function, handle, &device);           \
        if (gate != SUCCESS)                                               \
            return gate;                                                   \
        __VA_ARGS__                                                        \
    }
#define PARAMETERS(...) , __VA_ARGS__

#define NUMBER_CALL(function, member) \
    DEVICE_CALL(function, (unsigned *value), return give_unsigned(device->member, value);)
#define LONG_CALL(function, member) \
    DEVICE_CALL(function, (uint64_t *value), return give_long(device->member, value);)
#define TEXT_CALL(function, member) \
    DEVICE_CALL(function, (char *text, unsigned size), return give_text(device->member, text, size);)

#endif
