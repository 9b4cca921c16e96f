// Package catalog is the table of the devices that a program can be told to use:
// a row says how a kind of device is opened, and whether it is taken unasked.
package catalog

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/cuda"
	"github.com/tidemark-lab/tidemark/device/precision"
)

// Options are what a device is opened with. The zero value is the default.
type Options struct {
	Alloc alloc.Config
	// Products is how products of float32 matrices are computed, where
	// Kind.RoundsProducts.
	Products precision.Products
	// Profile gets a table of the time of each kind of call, where a device
	// measures it.
	Profile io.Writer
}

// Row is a kind of device as a program opens it.
type Row struct {
	device.Kind
	// WorkspaceBytes is what its matrix library works best in.
	WorkspaceBytes int64
	// present is nil where one is there. auto is the order in which Auto takes
	// them, from 1, and one how it names the one that it took.
	present func() error
	auto    int
	one     string
	open    func(number int, o Options) (device.Device, error)
}

var rows = []Row{
	{Kind: device.KindMeta, auto: 2, one: "meta", present: func() error { return nil },
		open: func(_ int, o Options) (device.Device, error) { return device.NewMeta(o.Alloc), nil }},
	{Kind: device.KindCPU,
		open: func(_ int, o Options) (device.Device, error) { return device.NewCPU(o.Alloc), nil }},
	{Kind: device.KindCUDA, auto: 1, one: "the first GPU", WorkspaceBytes: cuda.WorkspaceBytes,
		present: func() error {
			_, err := cuda.Cards()
			return err
		},
		open: func(number int, o Options) (device.Device, error) {
			d, err := cuda.Open(number, cuda.Options{Alloc: o.Alloc, Products: o.Products, Profile: o.Profile})
			if err != nil {
				return nil, err // not a Device that is nil
			}
			return d, nil
		}},
}

// Auto is the name that stands for the fastest device that is there, else for the
// one that computes nothing.
const Auto = "auto"

// Choice is the device that a name asks for.
type Choice struct {
	Row
	Number int
	// Note says why, where Auto chose.
	Note string
}

// Open opens the device; the error wraps device.ErrAbsent where it is not there.
func (c Choice) Open(o Options) (device.Device, error) { return c.open(c.Number, o) }

// Usage lists what Find takes.
func Usage() string {
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
		if r.Numbered {
			names = append(names, r.Name+":N")
		}
	}
	return strings.Join(names, ", ")
}

// Find is the device of a name: of a kind, with a number where there can be
// several, or Auto.
func Find(name string) (Choice, error) {
	if name == Auto {
		return auto(), nil
	}
	kind, number, numbered := strings.Cut(name, ":")
	for _, r := range rows {
		if r.Name != kind || numbered && !r.Numbered {
			continue
		}
		c := Choice{Row: r}
		if numbered {
			n, err := strconv.Atoi(number)
			if err != nil || n < 0 || strconv.Itoa(n) != number {
				return Choice{}, fmt.Errorf("device %q: after %s: comes the number of a GPU, such as %s:0", name, kind, kind)
			}
			c.Number = n
		}
		return c, nil
	}
	return Choice{}, fmt.Errorf("unknown device %q: there is %s, %s", name, Auto, Usage())
}

func auto() Choice {
	why := ""
	for place := 1; ; place++ {
		for _, r := range rows {
			if r.auto != place {
				continue
			}
			err := r.present()
			if err == nil {
				return Choice{Row: r, Note: "auto chose " + r.one + why}
			}
			why += ", because " + err.Error()
		}
	}
}
