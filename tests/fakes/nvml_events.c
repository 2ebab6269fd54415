/* libnvidia-ml.so.1: event sets. */
#include "nvml.h"

EXPORT int nvmlEventSetCreate(struct event_set **set) { return create_set(FN_nvmlEventSetCreate, set); }
EXPORT int nvmlEventSetFree(struct event_set *set) { return free_set(FN_nvmlEventSetFree, set); }

LONG_CALL(nvmlDeviceGetSupportedEventTypes, supported_event_types)

DEVICE_CALL(nvmlDeviceRegisterEvents, (unsigned long long types, struct event_set *set), {
    return types & ~(uint64_t)device->supported_event_types ? NOT_SUPPORTED : register_events(handle, types, set);
})

EXPORT int nvmlEventSetWait(struct event_set *set, struct nvml_event_v1 *data, unsigned timeout_milliseconds)
{
    struct event event;
    nvmlDevice_t device;
    int status = wait_for_event(FN_nvmlEventSetWait, set, timeout_milliseconds, &device, &event);
    if (status == SUCCESS)
        *data = (struct nvml_event_v1){device, event.type, event.data};
    return status;
}

EXPORT int nvmlEventSetWait_v2(struct event_set *set, struct nvml_event *data, unsigned timeout_milliseconds)
{
    struct event event;
    nvmlDevice_t device;
    int status = wait_for_event(FN_nvmlEventSetWait_v2, set, timeout_milliseconds, &device, &event);
    if (status == SUCCESS)
        *data = (struct nvml_event){device, event.type, event.data, UINT32_MAX, UINT32_MAX};
    return status;
}
