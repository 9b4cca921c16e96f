//go:build gpu

package cuda

// #include "driver.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
)

// Device is one GPU: its primary context, one stream and the caching allocator.
// All work is queued on the stream, whose order makes it safe to use memory
// again that earlier work still reads.
type Device struct {
	options       Options
	index         int
	dev           cu.Device
	context       cu.CUContext
	stream        cu.Stream
	card          Card
	driver        int // such as 13000
	architecture  string
	sharedBytes   int // shared memory that a block can have
	nvrtc         string
	cache         string
	backing       *backing
	allocator     *alloc.Allocator
	transfers     transfers
	timings       timings
	blas          unsafe.Pointer
	workspace     device.Tensor // for kernels
	blasWorkspace device.Tensor
	products      map[productKey]*fastProduct
	modules       map[source]cu.Module
	functions     map[kernelKey]*function
	arguments     arguments
	profile       *profile // nil when nothing is timed
	waiting       *queue   // while a replay collects work; else nil
	closed        bool
}

var _ device.Device = (*Device)(nil)

// Open makes the card of an index, counted as the driver does, ready for work.
// Its error wraps device.ErrAbsent when there is no such card or no driver.
func Open(index int, options Options) (*Device, error) {
	d, err := open(index, options)
	if err != nil {
		return nil, fmt.Errorf("cuda:%d: %w", index, err)
	}
	return d, nil
}

func open(index int, options Options) (*Device, error) {
	cards, err := Cards()
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= len(cards) {
		return nil, fmt.Errorf("this machine has %d cards, counted from 0: %w", len(cards), device.ErrAbsent)
	}
	d := &Device{options: options, index: index, dev: cu.Device(index), card: cards[index], driver: cu.Version(),
		cache: options.KernelCache, modules: map[source]cu.Module{}, functions: map[kernelKey]*function{},
		products: map[productKey]*fastProduct{}}
	if options.Profile != nil {
		d.profile = &profile{out: options.Profile, times: map[string]*callTime{}}
	}
	if d.cache == "" {
		d.cache = cacheFolder()
	}
	if d.nvrtc, err = nvrtcVersion(); err != nil {
		return nil, err
	}
	if d.dev, err = cu.GetDevice(index); err != nil {
		return nil, fmt.Errorf("opening the card: %w", err)
	}
	if d.context, err = d.dev.RetainPrimaryCtx(); err != nil {
		return nil, fmt.Errorf("making a context: %w", err)
	}
	if err := d.start(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// start makes what needs a context.
func (d *Device) start() error {
	const sharedOptIn = cu.DeviceAttribute(C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
	err := d.do(func() (err error) {
		if d.stream, err = cu.MakeStream(cu.NonBlocking); err != nil {
			return fmt.Errorf("making a stream: %w", err)
		}
		if d.sharedBytes, err = d.dev.Attribute(sharedOptIn); err != nil {
			return fmt.Errorf("asking for the size of shared memory: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if d.architecture, err = d.target(); err != nil {
		return err
	}
	if d.backing, err = newBacking(d); err != nil {
		return err
	}
	d.allocator = alloc.New(d.backing, d.options.Alloc)
	return d.openBLAS()
}

// target is the architecture to compile for: the card's. Where the NVRTC that is
// open no longer knows it, an older one is looked for.
func (d *Device) target() (string, error) {
	var major, minor int
	if _, err := fmt.Sscanf(d.card.Capability, "%d.%d", &major, &minor); err != nil {
		return "", fmt.Errorf("compute capability %q: %w", d.card.Capability, err)
	}
	a := 10*major + minor
	known, err := findCompiler(a)
	if err != nil {
		return "", err
	}
	if d.nvrtc, err = nvrtcVersion(); err != nil {
		return "", err
	}
	if !slices.Contains(known, a) {
		return "", fmt.Errorf("%s has compute capability %s, which NVRTC %s does not compile for (it knows %v)",
			d.card.Name, d.card.Capability, d.nvrtc, known)
	}
	return fmt.Sprintf("sm_%d", a), nil
}

// Cards lists the machine's GPUs. Its error wraps device.ErrAbsent when there
// is no driver or no card.
func Cards() ([]Card, error) {
	if err := initialise(); err != nil {
		return nil, err
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, fmt.Errorf("counting cards: %w", err)
	}
	if n == 0 {
		return nil, fmt.Errorf("the driver finds no card: %w", device.ErrAbsent)
	}
	cards := make([]Card, n)
	for i := range cards {
		if cards[i], err = describe(i); err != nil {
			return nil, fmt.Errorf("card %d: %w", i, err)
		}
	}
	return cards, nil
}

func describe(index int) (Card, error) {
	dev, err := cu.GetDevice(index)
	if err != nil {
		return Card{}, err
	}
	c := Card{Index: index}
	name, err := dev.Name()
	if err != nil {
		return c, err
	}
	c.Name = name
	if c.MemoryBytes, err = dev.TotalMem(); err != nil {
		return c, err
	}
	major, err1 := dev.Attribute(cu.ComputeCapabilityMajor)
	minor, err2 := dev.Attribute(cu.ComputeCapabilityMinor)
	c.Capability = fmt.Sprintf("%d.%d", major, minor)
	var err3 error
	c.Processors, err3 = dev.Attribute(cu.MultiprocessorCount)
	var u [16]byte
	err4 := result(C.tidemark_uuid(C.int(dev), (*C.uchar)(&u[0])))
	c.UUID = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
	return c, errors.Join(err1, err2, err3, err4)
}

func (d *Device) ccontext() C.CUcontext { return *(*C.CUcontext)(unsafe.Pointer(&d.context)) }
func (d *Device) cstream() C.CUstream   { return *(*C.CUstream)(unsafe.Pointer(&d.stream)) }

// do runs f with the device's context current. gorgonia.org/cu's functions use
// the context of their thread, and a goroutine can change threads.
func (d *Device) do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := result(C.tidemark_bind(d.ccontext())); err != nil {
		return err
	}
	return f()
}

// Info names the card, the driver and the CUDA version that it runs.
func (d *Device) Info() device.Info {
	bytes := d.card.MemoryBytes
	return device.Info{Kind: device.KindCUDA, Name: d.card.Name, MemoryBytes: &bytes, Driver: driverRelease(), CUDA: d.cudaVersion()}
}

// cudaVersion is the newest version of CUDA that the driver runs.
func (d *Device) cudaVersion() string { return fmt.Sprintf("%d.%d", d.driver/1000, d.driver%1000/10) }

// Allocator is where every byte comes from that work on the device uses, apart
// from what the driver and its libraries take for themselves; see Memory.
func (d *Device) Allocator() *alloc.Allocator { return d.allocator }

// HasKernel reports whether there is a launcher for the call.
func (d *Device) HasKernel(c *device.Call) bool { return launchers[c.Kernel] != nil }

// Run queues a kernel call.
func (d *Device) Run(c *device.Call) error {
	f := launchers[c.Kernel]
	if f == nil {
		return fmt.Errorf("%s has no GPU kernel", c.Kernel)
	}
	var err error
	if d.profile != nil {
		err = d.timed(c, f)
	} else {
		err = f(d, c)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.Kernel, err)
	}
	return nil
}

// Synchronize waits until all queued work is done. Errors of kernels that ran
// since the last call come back here.
func (d *Device) Synchronize() error {
	if err := d.submit(); err != nil {
		return err
	}
	if err := d.do(d.stream.Synchronize); err != nil {
		return fmt.Errorf("waiting for the card: %w", err)
	}
	return nil
}

// Close waits for queued work and gives everything back.
func (d *Device) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	profileErr := d.closeProfile()
	err := d.do(func() error {
		errs := []error{profileErr}
		if d.stream != (cu.Stream{}) {
			errs = append(errs, d.stream.Synchronize())
		}
		errs = append(errs, d.closeBLAS(), d.transfers.close(), d.timings.close())
		for _, m := range d.modules {
			errs = append(errs, m.Unload())
		}
		if d.backing != nil {
			errs = append(errs, d.backing.close())
		}
		if d.stream != (cu.Stream{}) {
			errs = append(errs, d.stream.Destroy())
		}
		return errors.Join(errs...)
	})
	err = errors.Join(err, d.dev.ReleasePrimaryCtx())
	C.tidemark_unbind()
	if err != nil {
		return fmt.Errorf("closing cuda:%d: %w", d.index, err)
	}
	return nil
}
