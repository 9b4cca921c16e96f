package data

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// counting is a text whose token at a place tells the place: characters 0, 1,
// 2, … from U+4E00 on.
func counting(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteRune(rune(0x4e00 + i))
	}
	return b.String()
}

func mustText(t *testing.T, content string, opts TextOptions) *Text {
	t.Helper()
	text, err := NewText("story.txt", content, opts)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestVocabulary(t *testing.T) {
	v, err := Characters("héllo\nwörld \ufffd")
	if err != nil {
		t.Fatal(err)
	}
	if v.Size() != 11 || v.String() != "11 characters" {
		t.Errorf("vocabulary is %v", v)
	}
	tokens, err := v.Encode("öl\n")
	if err != nil || !slices.Equal(tokens, []int32{9, 4, 0}) {
		t.Errorf("tokens %v, %v", tokens, err)
	}
	for _, v := range []*Vocabulary{v, Bytes()} {
		saved, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var restored Vocabulary
		if err := json.Unmarshal(saved, &restored); err != nil {
			t.Fatal(err)
		}
		if restored.String() != v.String() {
			t.Errorf("%v came back as %v", v, &restored)
		}
		tokens, err := restored.Encode("dröhl \ufffd")
		if err != nil {
			t.Fatal(err)
		}
		if text, err := v.Decode(tokens); err != nil || text != "dröhl \ufffd" {
			t.Errorf("%v: came back as %q, %v", v, text, err)
		}
	}
	if text, err := Bytes().Decode([]int32{255, 65}); err != nil || text != "\xffA" {
		t.Errorf("bytes decode to %q, %v", text, err)
	}
}

func TestVocabularyErrors(t *testing.T) {
	v, err := Characters("abc\n")
	if err != nil {
		t.Fatal(err)
	}
	_, err = v.Encode("ab\nbécc")
	wantError(t, err, `character 'é' (U+00E9) at line 2, column 2 (byte 4) is not among the 4 characters of the vocabulary ("\nabc")`)
	_, err = v.Encode("a\xffb")
	wantError(t, err, "byte 0xff at line 1, column 2 (byte 1) is not UTF-8 text; take bytes")
	_, err = v.Decode([]int32{0, 4})
	wantError(t, err, "token 4 at position 1 is outside the vocabulary of 4 characters")
	_, err = v.Decode([]int32{-1})
	wantError(t, err, "token -1")
	_, err = Bytes().Decode([]int32{256})
	wantError(t, err, "256 bytes")
	_, err = Characters(strings.Repeat("a", 10) + "\xc3")
	wantError(t, err, "not UTF-8")
	var many strings.Builder
	for r := rune(0x10000); r < 0x10000+maxCharacters+1; r++ {
		many.WriteRune(r)
	}
	_, err = Characters(many.String())
	wantError(t, err, "more than 65536 different characters")
	for text, want := range map[string]string{
		`[]`:               "cannot unmarshal",
		`{"kind":"words"}`: `kind is "words", want characters or bytes`,
		`{"kind":"bytes"}`: "says 0 tokens, has 256",
		`{"kind":"characters","size":2,"characters":"ba"}`: "out of order",
		`{"kind":"characters","size":2,"characters":"aa"}`: "out of order",
		`{"kind":"characters","size":3,"characters":"ab"}`: "says 3 tokens, has 2",
		`{"kind":"characters","size":0}`:                   "has 0 characters",
	} {
		wantError(t, json.Unmarshal([]byte(text), new(Vocabulary)), want)
	}
}

func TestLoadText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "story.txt")
	if err := os.WriteFile(path, []byte("to be or not to be\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := LoadText(t.Context(), path, TextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if text.Vocabulary.Size() != 8 || text.Len(Train) != 17 || text.Len(Validation) != 2 {
		t.Errorf("%v, %d and %d tokens", text.Vocabulary, text.Len(Train), text.Len(Validation))
	}
	if h := text.UnigramEntropy(Validation); math.Abs(h-math.Ln2) > 1e-15 {
		t.Errorf("entropy of \"e\\n\" is %v", h)
	}
	again, err := LoadText(t.Context(), path, TextOptions{Vocabulary: Bytes(), Validation: -1})
	if err != nil {
		t.Fatal(err)
	}
	if again.Len(Train) != 19 || again.Len(Validation) != 0 || again.Vocabulary.Size() != 256 || again.UnigramEntropy(Validation) != 0 {
		t.Errorf("%v, %d and %d tokens", again.Vocabulary, again.Len(Train), again.Len(Validation))
	}
	_, err = again.Windows(Validation, 1, 1, 0)
	wantError(t, err, "its validation part has 0 tokens, a context of 1 needs at least 2")

	_, err = LoadText(t.Context(), path, TextOptions{MaxBytes: 18})
	wantError(t, err, "story.txt has more than the 18 bytes that are allowed")
	other, err := Characters("to be")
	if err != nil {
		t.Fatal(err)
	}
	_, err = LoadText(t.Context(), path, TextOptions{Vocabulary: other})
	wantError(t, err, `character 'r' (U+0072) at line 1, column 8 (byte 7)`)
	wantError(t, err, path)
	_, err = LoadText(t.Context(), path+".gz", TextOptions{})
	wantError(t, err, "no such file")
	_, err = LoadText(t.Context(), filepath.Dir(path), TextOptions{})
	wantError(t, err, "is a folder, want a text file")
	_, err = NewText("x", "", TextOptions{})
	wantError(t, err, "text x: is empty")
	_, err = NewText("x", "abc", TextOptions{Validation: 1})
	wantError(t, err, "validation part is 1, want less than 1")
}

// Random windows are windows of their own part, every place is drawn, and the
// rows depend on the seed and their number alone: not on the batch size.
func TestWindows(t *testing.T) {
	const n, context = 1000, 7
	text := mustText(t, counting(n), TextOptions{Validation: 0.2})
	for part, want := range map[Split][2]int32{Train: {0, 800}, Validation: {800, 1000}} {
		src, err := text.Windows(part, 12, context, 3)
		if err != nil {
			t.Fatal(err)
		}
		if src.Len() != -1 || src.Shape() != (Shape{Tokens, 12, context, n}) {
			t.Errorf("source of %d batches, %+v", src.Len(), src.Shape())
		}
		starts := map[int32]bool{}
		var b Batch
		for i := range 1000 {
			if err := src.Batch(i, &b); err != nil {
				t.Fatal(err)
			}
			if b.Index != i || b.Count != 12*context {
				t.Fatalf("batch %d has index %d and %d targets", i, b.Index, b.Count)
			}
			for r := range 12 {
				starts[b.Inputs[r*context]] = true
				for j := r * context; j < (r+1)*context; j++ {
					if b.Inputs[j] != b.Inputs[r*context]+int32(j-r*context) || b.Targets[j] != b.Inputs[j]+1 ||
						b.Inputs[j] < want[0] || b.Targets[j] >= want[1] {
						t.Fatalf("batch %d, row %d: %v to %v", i, r, b.Inputs[r*context:(r+1)*context], b.Targets[r*context:(r+1)*context])
					}
				}
			}
		}
		if places := int(want[1]-want[0]) - context; len(starts) != places {
			t.Errorf("%v: %d starts drawn of %d", part, len(starts), places)
		}
	}
	whole, err := text.Windows(Train, 12, context, 3)
	if err != nil {
		t.Fatal(err)
	}
	thirds, err := text.Windows(Train, 4, context, 3)
	if err != nil {
		t.Fatal(err)
	}
	var b, third Batch
	if err := whole.Batch(5, &b); err != nil {
		t.Fatal(err)
	}
	for k := range 3 {
		if err := thirds.Batch(15+k, &third); err != nil {
			t.Fatal(err)
		}
		if rows := b.Inputs[k*4*context : (k+1)*4*context]; !slices.Equal(rows, third.Inputs) {
			t.Errorf("third %d is %v, want %v", k, third.Inputs, rows)
		}
	}
}

// Sequential windows bring each token but the first as a target exactly once.
func TestSequential(t *testing.T) {
	for _, n := range []int{6, 10, 11, 16, 17, 97} {
		text := mustText(t, counting(n), TextOptions{Validation: -1})
		const batch, context = 3, 5
		src, err := text.Sequential(Train, batch, context)
		if err != nil {
			t.Fatal(err)
		}
		next, count := int32(1), 0
		var b Batch
		for i := range src.Len() {
			if err := src.Batch(i, &b); err != nil {
				t.Fatal(err)
			}
			count += b.Count
			for j, target := range b.Targets {
				if target == Ignore {
					continue
				}
				if target != next || b.Inputs[j] != target-1 {
					t.Fatalf("n %d: target %d of input %d, want %d", n, target, b.Inputs[j], next)
				}
				next++
			}
		}
		if int(next) != n || count != n-1 {
			t.Errorf("n %d: last target %d, %d counted", n, next-1, count)
		}
		wantError(t, src.Batch(src.Len(), &b), "does not exist")
		wantError(t, src.Batch(-1, &b), "batch -1 does not exist")
	}
}

func TestWindowErrors(t *testing.T) {
	text := mustText(t, counting(100), TextOptions{})
	_, err := text.Windows(Train, 4, 256, 0)
	wantError(t, err, "text story.txt: its training part has 90 tokens, a context of 256 needs at least 257")
	_, err = text.Sequential(Validation, 4, 10)
	wantError(t, err, "its validation part has 10 tokens, a context of 10 needs at least 11")
	if _, err = text.Windows(Validation, 4, 9, 0); err != nil {
		t.Error(err)
	}
	_, err = text.Windows(Train, 0, 8, 0)
	wantError(t, err, "batch size is 0, want at least 1")
	_, err = text.Sequential(Train, 4, -1)
	wantError(t, err, "context is -1, want at least 1")
	_, err = text.Windows(Train, 1<<40, 8, 0)
	wantError(t, err, "beyond 2³¹ elements")
}

func TestRandomTokens(t *testing.T) {
	const vocabulary, context = 17, 9
	src, err := RandomTokens(vocabulary, 8, context, 5)
	if err != nil {
		t.Fatal(err)
	}
	counts := make([]int, vocabulary)
	var b, again Batch
	for i := range 200 {
		if err := src.Batch(i, &b); err != nil {
			t.Fatal(err)
		}
		for j, target := range b.Targets {
			counts[target]++
			if j%context != context-1 && b.Inputs[j+1] != target {
				t.Fatalf("target %d is %d, the next input %d", j, target, b.Inputs[j+1])
			}
		}
	}
	for token, c := range counts {
		if want := 200 * 8 * context / vocabulary; c < want*3/4 || c > want*5/4 {
			t.Errorf("token %d came %d times, want about %d", token, c, want)
		}
	}
	if err := src.Batch(199, &again); err != nil || !slices.Equal(again.Targets, b.Targets) {
		t.Errorf("batch 199 came back different, %v", err)
	}
	_, err = RandomTokens(0, 8, 9, 5)
	wantError(t, err, "number of outputs is 0")
	_, err = RandomTokens(1<<33, 8, 9, 5)
	wantError(t, err, "does not fit 32 bits")
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q in it", err, want)
	} else if strings.Contains(err.Error(), "\n") {
		t.Errorf("error of several lines: %v", err)
	}
}

// TestPipes reads from a pipe that somebody writes to, from one that nobody
// does until told to stop, and from one without an end.
func TestPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	// A pipe keeps what was not read from it until its writer closes it too.
	write := func(content string) (closed chan error) {
		closed = make(chan error, 1)
		go func() {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err == nil {
				f.WriteString(content) // the reader may have left
				err = f.Close()
			}
			closed <- err
		}()
		return closed
	}
	closed := write("größe und maß, ein wenig text")
	text, err := LoadText(t.Context(), path, TextOptions{})
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if err != nil || text.Len(Train)+text.Len(Validation) != 29 {
		t.Errorf("%v, %v", text, err)
	}
	closed = write(strings.Repeat("x", 100))
	_, err = LoadText(t.Context(), path, TextOptions{MaxBytes: 50})
	wantError(t, err, "more than the 50 bytes")
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := LoadText(ctx, path, TextOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a pipe that nobody writes to: %v", err)
	}
	_, err = NewText("x", "abcabcd", TextOptions{MaxTokens: 3})
	wantError(t, err, "has more than the 3 different characters that the model's vocabulary has ('d' at line 1, column 7 (byte 6)")
}
