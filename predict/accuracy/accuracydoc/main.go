// Command accuracydoc writes docs/accuracy.md from records of PyTorch's memory.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/predict/accuracy"
)

func main() {
	records := flag.String("records", "predict/accuracy/testdata/pytorch_memory.json", "records to compare with")
	sources := flag.String("sources", "reference/recorded.json", "where the records come from")
	fineTuning := flag.String("finetuning", "predict/accuracy/testdata/pytorch_finetune.json", "records of what people fine-tune to compare with")
	out := flag.String("out", "docs/accuracy.md", "file to write; it is replaced")
	flag.Parse()
	if err := run(*records, *fineTuning, *sources, *out); err != nil {
		fmt.Fprintln(os.Stderr, "accuracydoc:", err)
		os.Exit(1)
	}
}

func run(records, fineTuning, sources, out string) error {
	list, err := accuracy.Read(records)
	if err != nil {
		return err
	}
	tuned, not, err := accuracy.ReadFineTuning(fineTuning)
	if err != nil {
		return err
	}
	list = append(list, tuned...)
	source, err := accuracy.ReadSources(sources)
	if err != nil {
		return err
	}
	var compared []*accuracy.Comparison
	for i := range list {
		c, err := accuracy.Compare(&list[i])
		if err != nil {
			return err
		}
		compared = append(compared, c)
	}
	return report.WriteFile(out, true, func(w io.Writer) error {
		_, err := w.Write(accuracy.Document(compared, source[records], source[fineTuning], not))
		return err
	})
}
