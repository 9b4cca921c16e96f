package accuracy

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recordedFolders hold nothing but what was recorded. The snapshots' folder has
// files made by hand too.
var recordedFolders = []string{"train/testdata", "predict/testdata/traces", "train/conformance/testdata", "optim/testdata",
	"predict/accuracy/testdata", "scenarios/testdata"}

// TestRecordedFilesHaveASource holds reference/recorded.json to the files: each
// is as it was recorded, and none is without a version.
func TestRecordedFilesHaveASource(t *testing.T) {
	sources, err := ReadSources("../../reference/recorded.json")
	if err != nil {
		t.Fatal(err)
	}
	for path, s := range sources {
		data, err := os.ReadFile("../../" + path)
		if err != nil {
			t.Error(err)
			continue
		}
		if sum := fmt.Sprintf("%x", sha256.Sum256(data)); sum != s.SHA256 {
			t.Errorf("%s is not as it was recorded: its checksum is %s, recorded.json has %s", path, sum, s.SHA256)
		}
		if s.Torch == "" || s.Transformers == "" || s.Date == "" {
			t.Errorf("%s: its source %+v lacks a version or a date", path, s)
		}
	}
	for _, folder := range recordedFolders {
		for _, pattern := range []string{"*.safetensors*", "*.tsv.gz", "pytorch_*.json", "*.pkl.gz"} {
			files, err := filepath.Glob("../../" + folder + "/" + pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				if path := strings.TrimPrefix(f, "../../"); sources[path].Torch == "" {
					t.Errorf("%s is not in reference/recorded.json: record it with make reference", path)
				}
			}
		}
	}
}

// TestDocumentNamesItsSource holds docs/accuracy.md to the versions of the
// records that it compares with.
func TestDocumentNamesItsSource(t *testing.T) {
	sources, err := ReadSources("../../reference/recorded.json")
	if err != nil {
		t.Fatal(err)
	}
	s, ok := sources["predict/accuracy/testdata/pytorch_memory.json"]
	if !ok {
		t.Fatal("the records have no source")
	}
	doc, err := os.ReadFile("../../docs/accuracy.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(doc, []byte(s.String())) {
		t.Errorf("docs/accuracy.md does not name %q; regenerate it with make accuracy", s)
	}
}
