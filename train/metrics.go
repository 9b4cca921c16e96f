package train

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// MetricsFile is the name of the file in the save folder with a line of JSON
// for each step and evaluation.
const MetricsFile = "metrics.jsonl"

// metrics is that file.
type metrics struct {
	dir string
	f   *os.File
	// evaluated is after how many steps the last evaluation in the file was.
	evaluated int
}

// metricsLine is what a line says about itself.
type metricsLine struct {
	Step       *int             `json:"step"`
	Rate       *json.RawMessage `json:"learning_rate"`
	Validation *json.RawMessage `json:"validation"`
}

// metricsStart is how every line begins.
const metricsStart = `{"step":`

func parseMetrics(line []byte) (metricsLine, bool) {
	var l metricsLine
	ok := bytes.HasPrefix(line, []byte(metricsStart)) && json.Unmarshal(line, &l) == nil &&
		l.Step != nil && (l.Rate != nil || l.Validation != nil)
	return l, ok
}

// begun reports whether a line is one that a kill cut short.
func begun(line []byte) bool {
	n := min(len(line), len(metricsStart))
	return string(line[:n]) == metricsStart[:n]
}

// eachMetric reads a file of metrics line by line, without the last one if that
// was cut short. A file that says something else is not ours.
func eachMetric(r io.Reader, path string, use func(line []byte, l metricsLine) error) (whole bool, err error) {
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if !begun(line) {
				return false, foreignMetrics(path, n)
			}
			return len(line) == 0, nil
		}
		if err != nil {
			return false, fmt.Errorf("metrics: %w", err)
		}
		l, ok := parseMetrics(line)
		if !ok {
			return false, foreignMetrics(path, n)
		}
		if err := use(line, l); err != nil {
			return false, err
		}
	}
}

func foreignMetrics(path string, line int) error {
	return fmt.Errorf("%s: line %d is not one of a training's metrics, so the file is not tidemark's: move it away, or save elsewhere", path, line)
}

// checkMetrics refuses a file of that name that is not ours.
func checkMetrics(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	_, err = eachMetric(f, path, func([]byte, metricsLine) error { return nil })
	return err
}

// openMetrics opens the file and drops the lines of steps that are to be done
// again, which a stop after the last save left. The file is never changed in
// place: what stays is written beside it, and renamed.
func openMetrics(dir string, from int) (*metrics, error) {
	m := &metrics{dir: dir, evaluated: -1}
	if dir == "" {
		return m, nil
	}
	path := filepath.Join(dir, MetricsFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	m.f = f
	dropped := false
	keep := func(l metricsLine) bool { return *l.Step < from || l.Validation != nil && *l.Step <= from }
	whole, err := eachMetric(f, path, func(_ []byte, l metricsLine) error {
		switch {
		case !keep(l):
			dropped = true
		case l.Validation != nil:
			m.evaluated = *l.Step
		}
		return nil
	})
	if err == nil && (dropped || !whole) {
		err = m.rewrite(keep)
	}
	if err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// rewrite puts a new file with the lines that stay in the place of the file.
func (m *metrics) rewrite(keep func(metricsLine) bool) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("metrics: %w", err)
		}
	}()
	if _, err := m.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	n, err := os.CreateTemp(m.dir, ".metrics-*")
	if err != nil {
		return err
	}
	path := filepath.Join(m.dir, MetricsFile)
	w := bufio.NewWriter(n)
	_, err = eachMetric(m.f, path, func(line []byte, l metricsLine) error {
		if !keep(l) {
			return nil
		}
		_, err := w.Write(line)
		return err
	})
	if err = errors.Join(err, w.Flush()); err == nil {
		err = errors.Join(n.Chmod(0o644), n.Sync())
	}
	if err == nil {
		err = os.Rename(n.Name(), path)
	}
	if err != nil {
		n.Close()
		os.Remove(n.Name())
		return err
	}
	syncFolder(m.dir)
	m.f.Close()
	m.f = n // at its end
	return nil
}

func (m *metrics) line(v any) error {
	if m.f == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	if _, err := m.f.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

func (m *metrics) step(s StepStats) error { return m.line(s) }

func (m *metrics) evaluation(step int, e Evaluation) error {
	m.evaluated = step
	return m.line(struct {
		Step       int        `json:"step"`
		Validation Evaluation `json:"validation"`
	}{step, e})
}

// flush puts the lines on disk. A file that was removed, as it is with its
// folder, is written again from what is still open.
func (m *metrics) flush() error {
	if m.f == nil {
		return nil
	}
	if !exists(filepath.Join(m.dir, MetricsFile)) {
		return m.rewrite(func(metricsLine) bool { return true })
	}
	return m.f.Sync()
}

func (m *metrics) close() {
	if m.f != nil {
		m.f.Close()
	}
}
