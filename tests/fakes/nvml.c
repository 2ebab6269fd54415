/* libnvidia-ml.so.1: start and stop, the system, and who the devices are. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const enum vendor vendor = NVIDIA;

EXPORT int nvmlInit_v2(void) { return start_library(FN_nvmlInit_v2); }

EXPORT int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return start_library(FN_nvmlInitWithFlags);
}

EXPORT int nvmlShutdown(void) { return stop_library(FN_nvmlShutdown, 0); }

EXPORT const char *nvmlErrorString(int status)
{
    switch (status) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMED_OUT: return "Timeout";
    case 12: return "NVML Shared Library Not Found";
    case 13: return "Function Not Found";
    case DEVICE_IS_LOST: return "GPU is lost";
    case 16: return "GPU requires reset";
    case LIBRARY_MISMATCH: return "Driver/library version mismatch";
    case VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}

/* ---- the system ---- */

EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    int gate = enter(FN_nvmlSystemGetDriverVersion);
    return gate ? gate : give_text(driver()->version, text, size);
}

EXPORT int nvmlSystemGetNVMLVersion(char *text, unsigned size)
{
    int gate = enter(FN_nvmlSystemGetNVMLVersion);
    return gate ? gate : give_text(driver()->library_version_text, text, size);
}

EXPORT int nvmlSystemGetCudaDriverVersion(unsigned *version)
{
    int gate = enter(FN_nvmlSystemGetCudaDriverVersion);
    return gate ? gate : give_unsigned(driver()->cuda_version, version);
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(unsigned *version)
{
    int gate = enter(FN_nvmlSystemGetCudaDriverVersion_v2);
    return gate ? gate : give_unsigned(driver()->cuda_version, version);
}

/* ---- handles ---- */

EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    int gate = enter(FN_nvmlDeviceGetCount_v2);
    return gate ? gate : give_unsigned(visible_count(), count);
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *handle)
{
    return give_handle(FN_nvmlDeviceGetHandleByIndex_v2, visible_handle((int)index), INVALID_ARGUMENT, handle);
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle)
{
    return give_handle(FN_nvmlDeviceGetHandleByUUID, find_handle(uuid, has_uuid), NOT_FOUND, handle);
}

/* Both spellings of the domain are known to NVML: 00000000:1B:00.0 and 0000:1B:00.0. */
static int has_bus_id(const struct device *device, const char *asked)
{
    const char *own = device->bus_id;
    return strcasecmp(own, asked) == 0 || (strlen(own) > 4 && strcasecmp(own + 4, asked) == 0);
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *handle)
{
    return give_handle(FN_nvmlDeviceGetHandleByPciBusId_v2, find_handle(bus_id, has_bus_id), NOT_FOUND, handle);
}

/* ---- identity ---- */

TEXT_CALL(nvmlDeviceGetName, name)
TEXT_CALL(nvmlDeviceGetUUID, uuid)
TEXT_CALL(nvmlDeviceGetSerial, serial)
TEXT_CALL(nvmlDeviceGetVbiosVersion, vbios_version)
NUMBER_CALL(nvmlDeviceGetMinorNumber, minor_number)
NUMBER_CALL(nvmlDeviceGetModuleId, module_id)
NUMBER_CALL(nvmlDeviceGetBrand, brand)
NUMBER_CALL(nvmlDeviceGetArchitecture, architecture)

DEVICE_CALL(nvmlDeviceGetIndex, (unsigned *index), (void)device; return give_unsigned(index_of(handle), index);)

DEVICE_CALL(nvmlDeviceGetCudaComputeCapability, (int *major, int *minor), {
    *major = device->compute_capability_major;
    *minor = device->compute_capability_minor;
    return SUCCESS;
})

DEVICE_CALL(nvmlDeviceGetPciInfo_v3, (struct nvml_pci *pci), {
    memset(pci, 0, sizeof *pci);
    unsigned function;
    sscanf(device->bus_id, "%x:%x:%x.%x", &pci->domain, &pci->bus, &pci->device, &function);
    memcpy(pci->bus_id, device->bus_id, sizeof pci->bus_id);
    strncpy(pci->bus_id_legacy, device->bus_id + 4, sizeof pci->bus_id_legacy - 1);
    pci->pci_device_id = device->pci_device_id;
    pci->pci_subsystem_id = device->pci_subsystem_id;
    return SUCCESS;
})

/* ---- MIG: a device may be in MIG mode, but has no instances ---- */

DEVICE_CALL(nvmlDeviceGetMigMode, (unsigned *current, unsigned *pending), {
    int status = give_unsigned(device->mig_mode, current);
    return status ? status : give_unsigned(device->mig_mode, pending);
})

DEVICE_CALL(nvmlDeviceIsMigDeviceHandle, (unsigned *answer), (void)device; return give_unsigned(0, answer);)

DEVICE_CALL(nvmlDeviceGetMaxMigDeviceCount, (unsigned *count), {
    return give_unsigned(device->mig_mode == UNSUPPORTED ? UNSUPPORTED : 7, count);
})

DEVICE_CALL(nvmlDeviceGetMigDeviceHandleByIndex, (unsigned index, nvmlDevice_t *mig), {
    (void)device;
    (void)index;
    (void)mig;
    return NOT_FOUND;
})
