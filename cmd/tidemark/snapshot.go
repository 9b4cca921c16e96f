package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

func snapshotCommand() *cli.Command {
	return &cli.Command{
		Name:      "snapshot",
		Usage:     "look into PyTorch memory snapshots and replay them; with a FILE alone, explain it",
		ArgsUsage: "FILE",
		Flags:     explainFlags(),
		Subcommands: []*cli.Command{
			snapshotExplainCommand(),
			snapshotDiffCommand(),
			snapshotViewCommand(),
			{
				Name:      "stat",
				Usage:     "say what is in a memory snapshot",
				ArgsUsage: "FILE",
				Flags: []cli.Flag{
					&cli.IntFlag{Name: "top", Value: 5, Usage: "how many of the largest live blocks to list"},
					&cli.BoolFlag{Name: "json", Usage: "print JSON instead of text"},
					&cli.BoolFlag{Name: "bytes", Usage: "show exact bytes beside GiB"},
				},
				Action: snapshotStat,
			},
			{
				Name:      "replay",
				Usage:     "run a snapshot's history through the allocator",
				ArgsUsage: "FILE",
				Flags: []cli.Flag{
					&cli.Int64Flag{Name: "limit-bytes", Usage: "most bytes that the allocator may reserve; 0 for no limit"},
					&cli.StringFlag{Name: "alloc-conf", Usage: "allocator settings as in PYTORCH_CUDA_ALLOC_CONF (default: the file's)"},
					&cli.IntFlag{Name: "device", Usage: "which device's history (default: the first that has one)"},
					&cli.BoolFlag{Name: "check", Usage: "compare segment events with the file's own; status 3 if they differ"},
					&cli.BoolFlag{Name: "json", Usage: "print JSON instead of text"},
					&cli.BoolFlag{Name: "bytes", Usage: "show exact bytes beside GiB"},
				},
				Action: snapshotReplay,
			},
		},
		Action: func(c *cli.Context) error {
			if name := c.Args().First(); c.NArg() == 1 && exists(name) {
				return snapshotExplain(c)
			} else if name != "" {
				return fmt.Errorf("unknown snapshot command %q, and no such file: there is explain, view, diff, stat, replay", name)
			}
			return errors.New("say what to do with the snapshot: explain, view, diff, stat or replay")
		},
	}
}

// snapshotFile reads the file that is the command's one argument.
func snapshotFile(c *cli.Context) (*snapshot.Snapshot, error) {
	if c.NArg() != 1 {
		return nil, fmt.Errorf("snapshot %s takes one snapshot file, got %d arguments", c.Command.Name, c.NArg())
	}
	return snapshot.ReadFile(c.Args().First())
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
	LiveBlocks     int            `json:"live_blocks"`
	Largest        []statBlock    `json:"largest"`
}

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
		return printJSON(c.App.Writer, out)
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
		LiveBlocks: len(m.Live), Largest: []statBlock{}}
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
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "file\t%s\n", report.Quote(out.File))
	fmt.Fprintf(t, "settings\t%s\n", out.Settings)
	if len(out.Devices) == 0 {
		fmt.Fprint(t, "devices\tnone has a segment or a history\n")
	}
	for _, d := range out.Devices {
		fmt.Fprintf(t, "\ndevice %d\n", d.Device)
		var actions []string
		for a := snapshot.Other; a <= snapshot.OOM; a++ {
			if n := d.Actions[a.String()]; n > 0 {
				actions = append(actions, fmt.Sprintf("%d %v", n, a))
			}
		}
		if d.Entries == 0 {
			actions = []string{"none"}
		}
		fmt.Fprintf(t, "  history\t%s\n", strings.Join(actions, ", "))
		if d.BeganMicros != nil {
			began, ended := time.UnixMicro(*d.BeganMicros), time.UnixMicro(*d.EndedMicros)
			fmt.Fprintf(t, "  time\t%s, %.6f s\n", began.UTC().Format(time.RFC3339), ended.Sub(began).Seconds())
		}
		fmt.Fprintf(t, "  segments\t%d\n", d.Segments)
		fmt.Fprintf(t, "  reserved\t%s\tpeak %s\n", report.Bytes(d.ReservedBytes, exact), report.Bytes(d.PeakReserved, exact))
		fmt.Fprintf(t, "  requested\t%s\tpeak %s\n", report.Bytes(d.RequestedBytes, exact), report.Bytes(d.PeakRequested, exact))
		fmt.Fprintf(t, "  allocated\t%s\n", report.Bytes(d.AllocatedBytes, exact))
		fmt.Fprintf(t, "  active\t%s\tin %d blocks\n", report.Bytes(d.ActiveBytes, exact), d.LiveBlocks)
		for i, b := range d.Largest {
			label := ""
			if i == 0 {
				label = "largest"
			}
			from := "no stack"
			if len(b.Frames) > 0 {
				from = report.Quote(b.Frames[0])
			}
			fmt.Fprintf(t, "  %s\t%s\tat %#x, %s\n", label, report.Bytes(b.Bytes, exact), b.Addr, from)
		}
	}
	return t.Flush()
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
	if len(list) == 0 {
		return "default"
	}
	return strings.Join(list, ", ")
}

type replayOutput struct {
	File            string       `json:"file"`
	Device          int          `json:"device"`
	Entries         int          `json:"entries"`
	EntriesReplayed int          `json:"entries_replayed"`
	OutOfMemory     []replayOOM  `json:"out_of_memory"`
	Initial         alloc.Stats  `json:"initial"`
	Final           alloc.Stats  `json:"final"` // with the peaks of all of the history
	SegmentEvents   replayEvents `json:"segment_events"`
}

type replayOOM struct {
	Entry    int    `json:"entry"`
	Recorded bool   `json:"recorded"` // it ran out when the file was recorded, too
	Error    string `json:"error"`
}

type replayEvents struct {
	Recorded   int     `json:"recorded"`
	Replayed   int     `json:"replayed"`
	Difference *string `json:"first_difference"` // null if there is none
}

func snapshotReplay(c *cli.Context) error {
	var o snapshot.Options
	if c.IsSet("alloc-conf") {
		config, err := alloc.ParseConfig(c.String("alloc-conf"))
		if err != nil {
			return fmt.Errorf("--alloc-conf: %w", err)
		}
		o.Config = &config
	}
	if o.LimitBytes = c.Int64("limit-bytes"); o.LimitBytes < 0 {
		return fmt.Errorf("--limit-bytes %d: it must not be negative", o.LimitBytes)
	}
	if c.IsSet("device") {
		device := c.Int("device")
		o.Device = &device
	}
	s, err := snapshotFile(c)
	if err != nil {
		return err
	}
	r, err := snapshot.Replay(s, o)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Args().First(), err)
	}
	out := replayOutput{File: c.Args().First(), Device: r.Device, Entries: len(s.Traces[r.Device]), EntriesReplayed: r.Entries,
		OutOfMemory: []replayOOM{}, Initial: r.Initial, Final: r.Final,
		SegmentEvents: replayEvents{Recorded: len(r.Recorded), Replayed: len(r.Replayed)}}
	for _, e := range r.OOMs {
		out.OutOfMemory = append(out.OutOfMemory, replayOOM{e.Index, e.Recorded, e.Err.Error()})
	}
	if r.Difference != nil {
		text := r.Difference.String()
		out.SegmentEvents.Difference = &text
	}
	if c.Bool("json") {
		err = printJSON(c.App.Writer, out)
	} else {
		err = printReplay(c.App.Writer, out, c.Bool("bytes"))
	}
	if err == nil && c.Bool("check") && r.Difference != nil {
		return cli.Exit(out.File+": "+r.Difference.String(), exitDoesNotHold)
	}
	return err
}

func printReplay(w io.Writer, out replayOutput, exact bool) error {
	fmt.Fprintf(w, "device %d: %d of %d entries replayed\n\n", out.Device, out.EntriesReplayed, out.Entries)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, allocated, reserved int64) {
		fmt.Fprintf(t, "%s\t%s\t%s\t\n", name, report.Bytes(allocated, exact), report.Bytes(reserved, exact))
	}
	fmt.Fprint(t, "\tallocated\treserved\t\n")
	row("before", out.Initial.Allocated.Current, out.Initial.Reserved.Current)
	row("peak", out.Final.Allocated.Peak, out.Final.Reserved.Peak)
	row("final", out.Final.Allocated.Current, out.Final.Reserved.Current)
	if err := t.Flush(); err != nil {
		return err
	}
	f := &out.Final
	fmt.Fprintf(w, "\nrequested peak %s, inactive split %s (peak %s), %d segments, %d retries, %d out of memory\n",
		report.Bytes(f.Requested.Peak, exact), report.Bytes(f.InactiveSplit.Current, exact),
		report.Bytes(f.InactiveSplit.Peak, exact), f.Segments.Current, f.NumAllocRetries, f.NumOOMs)
	for _, e := range out.OutOfMemory {
		when := "here only, which ends the replay"
		if e.Recorded {
			when = "as recorded"
		}
		fmt.Fprintf(w, "entry %d (%s): %s\n", e.Entry, when, e.Error)
	}
	same := "the same in the file"
	if out.SegmentEvents.Difference != nil {
		same = *out.SegmentEvents.Difference
	}
	_, err := fmt.Fprintf(w, "%d segment events: %s\n", out.SegmentEvents.Replayed, same)
	return err
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
