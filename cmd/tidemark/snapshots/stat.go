package snapshots

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

func snapshotStatCommand() *cli.Command {
	return &cli.Command{
		Name:      "stat",
		Usage:     "say what is in a memory snapshot",
		ArgsUsage: "FILE",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "top", Value: 5, Usage: "how many of the largest live blocks to list"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON instead of text"},
			&cli.BoolFlag{Name: "bytes", Usage: "show exact bytes beside GiB"},
		},
		Action: snapshotStat,
	}
}

type statOutput struct {
	File     string        `json:"file"`
	Settings *statSettings `json:"settings"` // null in files that carry none
	Devices  []statDevice  `json:"devices"`
}

type statSettings struct {
	AllocConf                  string         `json:"alloc_conf"`
	MaxSplitBytes              *int64         `json:"max_split_bytes"`
	GarbageCollectionThreshold float64        `json:"garbage_collection_threshold"`
	ExpandableSegments         bool           `json:"expandable_segments"`
	RoundupPower2Divisions     map[string]int `json:"roundup_power2_divisions_by_mib"`
	// Problem says what of AllocConf a replay cannot follow; null if it can all.
	Problem *string `json:"problem"`
}

type statDevice struct {
	Device         int            `json:"device"`
	Entries        int            `json:"entries"`
	Actions        map[string]int `json:"actions"`
	BeganMicros    *int64         `json:"began_us"`
	EndedMicros    *int64         `json:"ended_us"`
	Segments       int            `json:"segments"`
	ReservedBytes  int64          `json:"reserved_bytes"`
	AllocatedBytes int64          `json:"allocated_bytes"`
	ActiveBytes    int64          `json:"active_bytes"`
	RequestedBytes int64          `json:"requested_bytes"`
	PeakReserved   int64          `json:"peak_reserved_bytes"`
	PeakRequested  int64          `json:"peak_requested_bytes"`
	PrivatePools   []statPool     `json:"private_pools"`
	LiveBlocks     int            `json:"live_blocks"`
	Largest        []statBlock    `json:"largest"`
}

// statPool is a pool whose memory serves no other requests, such as a CUDA
// graph's.
type statPool struct {
	ID            snapshot.PoolID `json:"id"`
	Segments      int             `json:"segments"`
	ReservedBytes int64           `json:"reserved_bytes"`
	ActiveBytes   int64           `json:"active_bytes"`
}

func (p statPool) String() string { return fmt.Sprintf("(%d, %d)", p.ID[0], p.ID[1]) }

type statBlock struct {
	Addr           uint64   `json:"addr"`
	Bytes          int64    `json:"bytes"`
	RequestedBytes int64    `json:"requested_bytes"`
	State          string   `json:"state"`
	From           *string  `json:"from"` // the first user frame, else the first operation; null without a stack
	Frames         []string `json:"frames"`
}

func snapshotStat(c *cli.Context) error {
	if c.Int("top") < 0 {
		return fmt.Errorf("--top %d: it must not be negative", c.Int("top"))
	}
	s, err := snapshotFile(c)
	if err != nil {
		return err
	}
	out := statOutput{File: c.Args().First(), Settings: settingsOutput(s.Settings), Devices: []statDevice{}}
	for _, m := range snapshot.Summarize(s) {
		out.Devices = append(out.Devices, deviceOutput(s, m, c.Int("top")))
	}
	if c.Bool("json") {
		return shell.PrintJSON(c.App.Writer, out)
	}
	return printStat(c.App.Writer, out, c.Bool("bytes"))
}

func settingsOutput(s *snapshot.Settings) *statSettings {
	if s == nil {
		return nil
	}
	out := &statSettings{AllocConf: s.AllocConf, GarbageCollectionThreshold: s.GarbageCollectionThreshold,
		ExpandableSegments: s.ExpandableSegments, RoundupPower2Divisions: map[string]int{}}
	if s.MaxSplitBytes > 0 {
		out.MaxSplitBytes = &s.MaxSplitBytes
	}
	if err := s.Problem(); err != nil {
		text := err.Error()
		out.Problem = &text
	}
	for i, n := range s.RoundupPower2Divisions {
		if n > 0 {
			out.RoundupPower2Divisions[fmt.Sprint(1<<i)] = n
		}
	}
	return out
}

func deviceOutput(s *snapshot.Snapshot, m snapshot.Summary, top int) statDevice {
	d := statDevice{Device: m.Device, Entries: m.Entries, Actions: map[string]int{}, Segments: m.Segments,
		ReservedBytes: m.ReservedBytes, AllocatedBytes: m.AllocatedBytes, ActiveBytes: m.ActiveBytes,
		RequestedBytes: m.RequestedBytes, PeakReserved: m.PeakReservedBytes, PeakRequested: m.PeakRequestedBytes,
		LiveBlocks: len(m.Live), PrivatePools: []statPool{}, Largest: []statBlock{}}
	for _, p := range m.PrivatePools {
		d.PrivatePools = append(d.PrivatePools, statPool(p))
	}
	if m.BeganMicros != 0 {
		d.BeganMicros, d.EndedMicros = &m.BeganMicros, &m.EndedMicros
	}
	for a, n := range m.Actions {
		if n > 0 {
			d.Actions[snapshot.Action(a).String()] = n
		}
	}
	for _, b := range m.Live[:min(top, len(m.Live))] {
		block := statBlock{b.Addr, b.Bytes, b.RequestedBytes, b.State.String(), nil, []string{}}
		frames := s.Frames(b.Stack)
		if o, ok := snapshot.OriginOf(frames); ok {
			from := o.String()
			block.From = &from
		}
		for _, f := range frames {
			block.Frames = append(block.Frames, fmt.Sprintf("%s:%d:%s", f.Filename, f.Line, f.Name))
		}
		d.Largest = append(d.Largest, block)
	}
	return d
}

func printStat(w io.Writer, out statOutput, exact bool) error {
	t := show.Table{Headings: []string{"", ""}, Last: show.Whole}
	t.Add("file", show.Quote(out.File))
	t.Add("settings", out.Settings.String())
	if len(out.Devices) == 0 {
		t.Add("devices", "none has a segment or a history")
	}
	err := t.Write(w)
	for i := range out.Devices {
		d := &out.Devices[i]
		fmt.Fprintf(w, "\ndevice %d\n", d.Device)
		err = errors.Join(err, d.table(exact).Write(w))
	}
	return err
}

// table is what the file says of a device.
func (d *statDevice) table(exact bool) *show.Table {
	t := &show.Table{Headings: []string{"", "", ""}, Last: show.Whole}
	var actions []string
	for a := snapshot.Other; a <= snapshot.UserDefined; a++ {
		if n := d.Actions[a.String()]; n > 0 {
			actions = append(actions, fmt.Sprintf("%d %v", n, a))
		}
	}
	if d.Entries == 0 {
		actions = []string{"none"}
	}
	t.Add("history", strings.Join(actions, ", "))
	if d.BeganMicros != nil {
		began, ended := time.UnixMicro(*d.BeganMicros), time.UnixMicro(*d.EndedMicros)
		t.Add("time", fmt.Sprintf("%s, %.6f s", began.UTC().Format(time.RFC3339), ended.Sub(began).Seconds()))
	}
	t.Add("segments", fmt.Sprint(d.Segments))
	t.Add("reserved", show.Bytes(d.ReservedBytes, exact), "peak "+show.Bytes(d.PeakReserved, exact))
	t.Add("requested", show.Bytes(d.RequestedBytes, exact), "peak "+show.Bytes(d.PeakRequested, exact))
	t.Add("allocated", show.Bytes(d.AllocatedBytes, exact))
	t.Add("active", show.Bytes(d.ActiveBytes, exact), fmt.Sprintf("in %d blocks", d.LiveBlocks))
	for _, p := range d.PrivatePools {
		t.Add(fmt.Sprintf("private pool %v", p), show.Bytes(p.ReservedBytes, exact),
			fmt.Sprintf("reserved in %d segments, %s active", p.Segments, show.Bytes(p.ActiveBytes, exact)))
	}
	for i, b := range d.Largest {
		label := ""
		if i == 0 {
			label = "largest"
		}
		from := "no stack"
		if b.From != nil {
			from = *b.From
		}
		t.Add(label, show.Bytes(b.Bytes, exact), fmt.Sprintf("at %#x, %s", b.Addr, from))
	}
	return t
}

// String is the settings that are not the default.
func (s *statSettings) String() string {
	if s == nil {
		return "not in the file"
	}
	var list []string
	if s.MaxSplitBytes != nil {
		list = append(list, fmt.Sprintf("max_split_size %d bytes", *s.MaxSplitBytes))
	}
	if s.GarbageCollectionThreshold > 0 {
		list = append(list, fmt.Sprintf("garbage_collection_threshold %v", s.GarbageCollectionThreshold))
	}
	if s.ExpandableSegments {
		list = append(list, "expandable_segments")
	}
	if len(s.RoundupPower2Divisions) > 0 {
		list = append(list, fmt.Sprintf("roundup_power2_divisions %v", s.RoundupPower2Divisions))
	}
	if s.Problem != nil {
		list = append(list, show.Quote(fmt.Sprintf("and %q, of which replays do not follow all: %s", s.AllocConf, *s.Problem)))
	}
	if len(list) == 0 {
		return "default"
	}
	return strings.Join(list, ", ")
}
