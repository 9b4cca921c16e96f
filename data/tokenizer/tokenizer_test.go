package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var kinds = []string{"gpt2", "llama3", "qwen2", "llama2", "mistral"}

// TestRecorded compares with what Hugging Face's library makes of the same texts.
func TestRecorded(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			z, err := Read("testdata/" + kind + ".json")
			if err != nil {
				t.Fatal(err)
			}
			var recorded []struct {
				Text       string
				IDs, Whole []int32
				Decoded    string
			}
			b, err := os.ReadFile("testdata/" + kind + ".recorded.json")
			if err == nil {
				err = json.Unmarshal(b, &recorded)
			}
			if err != nil || len(recorded) < 5 {
				t.Fatal(err)
			}
			for range 2 { // again with the pieces that were kept
				for _, r := range recorded {
					got, err := z.Encode(r.Text)
					if err != nil || !slices.Equal(got, r.IDs) {
						t.Errorf("%.60q: %v, %v, want %v", r.Text, err, got, r.IDs)
					}
					if whole := slices.Concat(z.Begin(), got, z.End()); !slices.Equal(whole, r.Whole) {
						t.Errorf("%.60q: with what is around it %v, want %v", r.Text, whole, r.Whole)
					}
					text, err := z.Decode(r.IDs)
					if err != nil || text != r.Decoded {
						t.Errorf("%v: %v, %q, want %q", r.IDs, err, text, r.Decoded)
					}
				}
			}
		})
	}
}

// TestRefuses changes a file: each is refused in one line with the name of what is
// not known or wrong.
func TestRefuses(t *testing.T) {
	whole, err := os.ReadFile("testdata/gpt2.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{`"type":"BPE"`, `"type":"WordPiece"`, `the model "WordPiece" is not known`},
		{`"normalizer":null`, `"normalizer":{"type":"BertNormalizer"}`, `the normalizer "BertNormalizer" is not known`},
		{`"pre_tokenizer":{"type":"ByteLevel"`, `"pre_tokenizer":{"type":"Bert"`, `the pre_tokenizer "Bert" is not known`},
		{`"decoder":{"type":"ByteLevel"`, `"decoder":{"type":"WordPiece"`, `the decoder "WordPiece" is not known`},
		{`"post_processor":{"type":"ByteLevel"`, `"post_processor":{"type":"BertProcessing"`, `the post_processor "BertProcessing" is not known`},
		{`"merges":[[`, `"merges":[["no","where"],[`, `"no" and "where", is of texts that are not in the vocabulary`},
		{`"unk_token":null`, `"unk_token":"<what>"`, `unk_token "<what>" is not in the vocabulary`},
		{`"dropout":null`, `"dropout":0.1`, "dropout of merges is not known"},
		{`"end_of_word_suffix":null`, `"end_of_word_suffix":"</w>"`, `end_of_word_suffix "</w>" is not known`},
		{`"model"`, `"other"`, "it has no model"},
	} {
		if !strings.Contains(string(whole), c.from) {
			t.Fatalf("%s is not in the file", c.from)
		}
		path := filepath.Join(t.TempDir(), FileName)
		if err := os.WriteFile(path, []byte(strings.Replace(string(whole), c.from, c.to, 1)), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.to, err, c.want)
		}
	}
	z, err := Parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []int32{-1, int32(z.Size())} {
		if _, err := z.Decode([]int32{id}); err == nil {
			t.Errorf("token %d is decoded", id)
		}
	}
}

func FuzzEncode(f *testing.F) {
	var all []*Tokenizer
	for _, kind := range kinds[:3] { // over bytes: they give every text back
		z, err := Read("testdata/" + kind + ".json")
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, z)
	}
	f.Add("Where does the memory go?\n  12")
	f.Add("e\u0301 \u00e9 <|endoftext|>")
	f.Fuzz(func(t *testing.T, text string) {
		for i, z := range all {
			tokens, err := z.Encode(text)
			if err != nil {
				t.Fatal(err)
			}
			back, err := z.Decode(tokens)
			if err != nil {
				t.Fatal(err)
			}
			if i < 2 && strings.ToValidUTF8(text, "") == text && back != text {
				t.Fatalf("%q comes back as %q", text, back)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	text, err := os.ReadFile("../../docs/training.md")
	if err != nil {
		b.Fatal(err)
	}
	z, err := Read("testdata/llama3.json")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := z.Encode(string(text)); err != nil {
			b.Fatal(err)
		}
	}
}
