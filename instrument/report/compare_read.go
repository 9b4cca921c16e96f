package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/device/precision"
)

// maxReportBytes bounds the reports that are read.
const maxReportBytes = 256 << 20

// ReadFile reads the report at path, a report.json or a folder that holds one,
// and returns it with the file's path. Numbers of the settings and checks stay
// as they are written. The error names the file and says what is wrong with it.
func ReadFile(path string) (*Report, string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, path, fmt.Errorf("read report: %w", err)
	}
	if info.IsDir() {
		folder := path
		path = filepath.Join(path, FileName)
		if info, err = os.Stat(path); err != nil {
			return nil, path, fmt.Errorf("read report: folder %s holds no %s", folder, FileName)
		}
	}
	if !info.Mode().IsRegular() {
		return nil, path, fmt.Errorf("read report: %s is no file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, path, fmt.Errorf("read report: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxReportBytes+1))
	if err != nil {
		return nil, path, fmt.Errorf("read report: %w", err)
	}
	if len(data) > maxReportBytes {
		return nil, path, fmt.Errorf("read report: %s has more than %d MiB", path, maxReportBytes>>20)
	}
	r, err := parse(data)
	if err != nil {
		return nil, path, fmt.Errorf("read report: %s: %w", path, err)
	}
	return r, path, nil
}

// parse decodes a report.
func parse(data []byte) (*Report, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("the file is empty")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, fmt.Errorf("not a tidemark report: %w", explainJSON(err))
	}
	for _, name := range []string{"tidemark", "scenario", "device", "runs", "checks"} {
		if _, ok := members[name]; !ok {
			return nil, fmt.Errorf("not a tidemark report: it has no %q", name)
		}
	}
	var r Report
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("not a tidemark report: %w", explainJSON(err))
	}
	// Settings keep their order.
	if settings, ok := members["settings"]; ok {
		r.Settings = settings
	}
	if r.Precision == precision.BF16 && formerlyMixed(r.Settings) {
		r.Precision = precision.BF16Mixed
	}
	for i := range r.Checks {
		c := &r.Checks[i]
		c.Expected, c.Observed = number(c.Expected), number(c.Observed)
	}
	return &r, nil
}

// formerlyMixed says that settings are of a time when bf16 was the name of
// bf16-mixed, and mixed_bf16 a setting of its own.
func formerlyMixed(settings any) bool {
	list, err := Flatten(settings)
	return err == nil && slices.ContainsFunc(list, func(s Setting) bool {
		return (s.Name == "mixed_bf16" || strings.HasSuffix(s.Name, ".mixed_bf16")) && s.Value == "true"
	})
}

// number is a value with an integer for a json.Number that is one, and a float
// for another.
func number(v any) any {
	n, ok := v.(json.Number)
	if !ok {
		return v
	}
	if i, err := n.Int64(); err == nil {
		return i
	}
	if f, err := n.Float64(); err == nil {
		return f
	}
	return n.String()
}

// explainJSON says what is wrong with JSON in the reader's terms.
func explainJSON(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax) && strings.Contains(syntax.Error(), "unexpected end"):
		return fmt.Errorf("the JSON ends too early, after %d bytes", syntax.Offset)
	case errors.As(err, &syntax):
		return fmt.Errorf("no JSON at byte %d: %w", syntax.Offset, err)
	case errors.As(err, &kind):
		field := kind.Field
		if field == "" {
			field = "the whole"
		}
		return fmt.Errorf("%s is %s", field, article(kind.Value))
	}
	return err
}

func article(kind string) string {
	if strings.IndexAny(kind, "aeiou") == 0 {
		return "an " + kind
	}
	return "a " + kind
}
