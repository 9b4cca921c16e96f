package main

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/cuda"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/session"
)

// What is generated of a workload, as in pytorch.py.
const (
	generateRows   = 8
	generatePrompt = 128
	generateNew    = 256
)

// generated is what is printed of generating.
type generated struct {
	Workload       string          `json:"workload"`
	Program        string          `json:"program"`
	Precision      string          `json:"precision"`
	Cache          train.CacheKind `json:"cache"`
	PrefillMs      float64         `json:"prefill_ms"`
	StepsPerSecond float64         `json:"steps_per_second"` // of decoding: a token of each row
	PeakBytes      int64           `json:"peak_bytes"`
}

// measureGeneration draws the likeliest tokens with each kind of cache, the second
// time measured.
func measureGeneration(name string, w workload, o cuda.Options) (err error) {
	config, err := models.ParseConfig(w.Model)
	if err != nil {
		return err
	}
	model, err := models.New(config)
	if err != nil {
		return err
	}
	_, vocabulary, _, err := models.Sizes(config)
	if err != nil {
		return err
	}
	dev, err := cuda.Open(0, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	s := session.New(dev, nil, session.Options{WorkspaceBytes: cuda.WorkspaceBytes})
	defer s.Close()
	if err := s.Materialize(model, device.Float32); err != nil {
		return err
	}
	for _, kind := range []train.CacheKind{train.CacheStatic, train.CacheDynamic} {
		d, err := train.NewDecoding(s, model, nn.Options{Mixed: w.precision.Mixed()},
			train.DecodingOptions{Cache: kind, Tokens: generatePrompt + generateNew - 1, Choose: vocabulary})
		if err != nil {
			return err
		}
		m := generated{Workload: name, Program: "tidemark", Precision: string(w.precision), Cache: kind}
		for range 2 {
			if m.PrefillMs, m.StepsPerSecond, err = draw(dev, d, vocabulary); err != nil {
				return err
			}
		}
		m.PeakBytes = dev.Allocator().Stats().Allocated.Peak
		d.Close()
		if err := json.NewEncoder(os.Stdout).Encode(m); err != nil {
			return err
		}
	}
	return nil
}

func draw(dev device.Device, d *train.Decoding, vocabulary int) (prefillMs, stepsPerSecond float64, err error) {
	prompts := make([][]int32, generateRows)
	for i := range prompts {
		for j := range generatePrompt {
			prompts[i] = append(prompts[i], int32((i*7919+j*104729)%vocabulary))
		}
	}
	if err := dev.Synchronize(); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	next, err := d.Prefill(prompts)
	if err != nil {
		return 0, 0, err
	}
	prefillMs = 1000 * time.Since(began).Seconds()
	began = time.Now()
	for range generateNew - 1 {
		if next, err = d.Step(next.Tokens); err != nil {
			return 0, 0, err
		}
	}
	return prefillMs, float64(generateNew-1) / time.Since(began).Seconds(), nil
}
