package snapshot

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

var byteOffset = regexp.MustCompile(`^byte \d+: `)

func load(t testing.TB, name string) *Snapshot {
	t.Helper()
	s, err := ReadFile("testdata/" + name + ".pkl.gz")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// gunzipped is the pickle of a recorded file.
func gunzipped(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open("testdata/" + name + ".pkl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestReadTruncated(t *testing.T) {
	plain := gunzipped(t, "linear_grad")
	zipped, err := os.ReadFile("testdata/gptchar_default.pkl.gz")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"plain": plain, "gzip": zipped} {
		if _, err := Read(bytes.NewReader(data)); err != nil {
			t.Fatal(name, err)
		}
		cuts := []int{len(data) - 1, len(data) - 5, len(data) - 8}
		for i := range 50 {
			cuts = append(cuts, len(data)*i/50)
		}
		for _, n := range cuts {
			_, err := Read(bytes.NewReader(data[:n]))
			if err == nil || !byteOffset.MatchString(err.Error()) || !strings.Contains(err.Error(), "truncated") && n > 0 {
				t.Errorf("%s cut to %d bytes: %v", name, n, err)
			}
		}
	}
}

// entries is a snapshot whose one history holds what items pickles.
func entries(items string) string {
	return "\x80\x02}(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces](](" + items + "eeu."
}

func text(s string) string { return "\x8c" + string(rune(len(s))) + s }

// with is a dict of an alloc entry in which key has a value of its own.
func with(key, value string) string {
	d := "}(" + text("action") + text("alloc") + text("addr") + "K\x10" + text("size") + "K\x10" + text("stream") + "K\x00"
	return d + text(key) + value + "u"
}

func TestReadRefuses(t *testing.T) {
	var bomb bytes.Buffer
	z, _ := gzip.NewWriterLevel(&bomb, 9)
	z.Write([]byte("\x80\x04X\x00\x00\x00\x7f"))
	for range 200 {
		z.Write(make([]byte, 1<<20))
	}
	z.Close()
	damaged, err := os.ReadFile("testdata/linear_grad.pkl.gz")
	if err != nil {
		t.Fatal(err)
	}
	damaged = bytes.Clone(damaged)
	damaged[len(damaged)-6]++
	for name, c := range map[string]struct{ data, want string }{
		"empty":             {"", "byte 0: the file is empty"},
		"text":              {"step,loss\n", "byte 0: not a pickle"},
		"zip":               {"PK\x03\x04", "byte 0: a zip archive"},
		"json":              {`{"segments": []}`, "byte 0: not a pickle"},
		"protocol 1":        {"\x80\x01.", "protocol 1"},
		"os.system":         {"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", `"os.system"`},
		"os.system 4":       {"\x80\x04" + text("os") + text("system") + "\x93.", `"os.system"`},
		"inst":              {"\x80\x02(ios\nsystem\n.", `"os.system"`},
		"long global":       {"\x80\x02c" + strings.Repeat("x", 1<<20), "nothing was called"},
		"reduce":            {"\x80\x02)R.", "REDUCE"},
		"build":             {"\x80\x02}}b.", "BUILD"},
		"persistent":        {"\x80\x02Px\n.", "PERSID"},
		"2 GB string":       {"\x80\x02X\xff\xff\xff\x7f" + strings.Repeat("x", 90), "truncated"},
		"huge string":       {"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f" + strings.Repeat("x", 90), "truncated"},
		"2^64 string":       {"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "string of"},
		"2 GB integer":      {"\x80\x04\x8b\xff\xff\xff\x7f" + strings.Repeat("x", 90), "truncated"},
		"negative integer":  {"\x80\x04\x8b\xff\xff\xff\xff", "negative length"},
		"far memo":          {"\x80\x02Nr\xff\xff\xff\xffj\xfe\xff\xff\xff.", "number 4294967294"},
		"deep marks":        {"\x80\x02" + strings.Repeat("(", 2000), "nested deeper"},
		"deep lists":        {"\x80\x02" + strings.Repeat("]", 1<<20) + strings.Repeat("a", 1<<20-1) + ".", "list of a list"},
		"stack":             {"\x80\x02a.", "did not push"},
		"mark":              {"\x80\x02e.", "did not begin"},
		"append to int":     {"\x80\x02K\x01K\x02a.", "not a list"},
		"odd dict":          {"\x80\x02}(Nu.", "not a dict"},
		"opcode":            {"\x80\x02\xfe.", "opcode 0xfe"},
		"a number":          {"\x80\x02K\x05.", "an integer"},
		"another dict":      {"\x80\x02}.", "segments and device_traces"},
		"trailing":          {"\x80\x02}..", "data follows"},
		"self list":         {"\x80\x02]q\x00h\x00a.", "a list of a list, not of segments"},
		"self trace":        {"\x80\x02}(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces]q\x00h\x00au.", "trace entry 0 is a list"},
		"entry":             {entries("K\x05"), "trace entry 0"},
		"negative size":     {entries(with("size", "J\xff\xff\xff\xff")), "size -1 is not between"},
		"negative address":  {entries(with("addr", "J\xfe\xff\xff\xff")), "addr -2"},
		"size of 72 bits":   {entries(with("size", "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01")), "more than 64 bits"},
		"size a string":     {entries(with("size", text("5"))), "size is a string"},
		"frames of numbers": {entries(with("frames", "](K\x01e")), "frames holds"},
		"no address":        {entries("}(" + text("action") + text("alloc") + "u"), "addr is missing"},
		"gzip header":       {"\x1f\x8b\x00", "gzip"},
		"gzip of text":      {string(gzipped("hello")), "byte 0: not a pickle"},
		"gzip checksum":     {string(damaged), "damaged compressed data"},
		"bomb":              {bomb.String(), "expands"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(strings.NewReader(c.data))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 400 {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func gzipped(s string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, s)
	z.Close()
	return b.Bytes()
}

// A length that the file does not hold takes no memory.
func TestReadBoundsMemory(t *testing.T) {
	for _, data := range []string{
		"\x80\x02X\xff\xff\xff\x7f" + strings.Repeat("x", 100),
		"\x80\x04\x8b\xff\xff\xff\x7f" + strings.Repeat("x", 100),
		"\x80\x02Nr\xff\xff\xff\xff" + strings.Repeat("x", 100),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Read(strings.NewReader(data)); err == nil {
			t.Error("no error")
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%d bytes allocated for a file of %d", n, len(data))
		}
	}
}

// Shared lists are not multiplied: 1,000 devices with one history.
func TestReadShares(t *testing.T) {
	data := "\x80\x02}(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces](](" +
		with("time_us", "K\x01") + "q\x01" + strings.Repeat("h\x01", 2000) + "eq\x02" + strings.Repeat("h\x02", 1000) + "eu."
	s, err := Read(strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Traces) != 1001 || len(s.Traces[1000]) != 2001 || &s.Traces[0][0] != &s.Traces[1000][0] {
		t.Errorf("%d histories, the last of %d entries", len(s.Traces), len(s.Traces[len(s.Traces)-1]))
	}
}

func TestReadFileNamesIt(t *testing.T) {
	for _, path := range []string{"testdata/none.pkl", "testdata"} {
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	data := gunzipped(b, "qwen_b2")
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(bytes.NewReader(data)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	s := load(b, "qwen_b2")
	b.ReportAllocs()
	for b.Loop() {
		if err := Write(io.Discard, s); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(s.Traces[0]))/b.Elapsed().Seconds(), "entries/s")
}
