//go:build gpu

package cuda

// #include "driver.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"gorgonia.org/cu"
)

// versionFile is where NVIDIA's kernel module says which version it is.
const versionFile = "/proc/driver/nvidia/version"

// Memory asks the driver how much of the card's memory is in use.
func (d *Device) Memory() (Memory, error) {
	var m Memory
	err := d.do(func() error {
		free, total, err := cu.MemInfo()
		m.TotalBytes, m.UsedBytes = total, total-free
		return err
	})
	if err != nil {
		return m, fmt.Errorf("asking for free memory: %w", err)
	}
	m.ReservedBytes = d.backing.bytes
	m.OtherBytes = m.UsedBytes - m.ReservedBytes
	uuid := C.CString(d.card.UUID)
	defer C.free(unsafe.Pointer(uuid))
	var own C.uint64_t
	if C.tidemark_own_memory(uuid, &own) == 0 && int64(own) >= m.ReservedBytes && int64(own) <= m.UsedBytes {
		libraries, others := int64(own)-m.ReservedBytes, m.UsedBytes-int64(own)
		m.LibrariesBytes, m.ProcessesBytes = &libraries, &others
	}
	return m, nil
}

// driverRelease is the version of the driver by NVML, or where that is not
// there by the kernel module; empty where neither says.
func driverRelease() string {
	var text [96]C.char
	if C.tidemark_driver_version(&text[0], C.uint(len(text))) == 0 {
		return C.GoString(&text[0])
	}
	module, err := os.ReadFile(versionFile)
	if err != nil {
		return ""
	}
	return parseModuleVersion(string(module))
}

// Environment describes the device and what it runs on. It loads every library.
func (d *Device) Environment() (Environment, error) {
	e := Environment{Driver: driverRelease(), CUDA: d.cudaVersion(), NVRTC: d.nvrtc, Card: d.card,
		Architecture: d.architecture, KernelCache: d.cache}
	var err1, err2, err3 error
	e.CUBLAS, err1 = d.BLASVersion()
	e.Memory, err2 = d.Memory()
	e.Cards, err3 = Cards()
	return e, errors.Join(err1, err2, err3)
}
