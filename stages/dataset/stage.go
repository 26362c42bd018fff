package dataset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"longship/cache"
	"longship/internal/rng"
	"longship/pipeline"
	"longship/stages/port"
)

// Factory makes the stage.
func Factory() pipeline.Factory {
	return pipeline.Factory{
		Type:    "dataset",
		Summary: "finds images and captions in a folder, and assigns buckets",
		Default: func() any { return Default() },
		New: func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
			return &stage{set: set, cfg: cfg.(*Config), out: pipeline.NewOut[port.Sample]("samples")}, nil
		},
	}
}

type stage struct {
	set pipeline.Settings
	cfg *Config
	out *pipeline.Out[port.Sample]
}

func (s *stage) Ports() []pipeline.Port { return []pipeline.Port{s.out} }

func (s *stage) Run(ctx context.Context) error {
	store, err := cache.Shared(ctx, s.set.Env, string(s.cfg.Cache))
	if err != nil {
		return err
	}
	pictures, err := s.find(ctx, store)
	if errors.Is(err, errStopped) {
		return nil
	}
	if err != nil {
		return err
	}
	samples := s.samples(pictures)
	if err := port.PutSamples(ctx, store, s.listName(), samples); err != nil {
		return err
	}
	s.report(pictures, samples)
	for _, sample := range samples {
		switch err := s.out.Send(ctx, sample); {
		case errors.Is(err, pipeline.ErrDone):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

func (s *stage) listName() string {
	return cmp.Or(s.cfg.List, s.set.Env.Name+"/"+s.set.ID)
}

// validationFolder returns the folder that validation names, "" where it names none.
func (s *stage) validationFolder() string {
	if _, isCount := s.cfg.validationCount(); isCount {
		return ""
	}
	if filepath.IsAbs(s.cfg.Validation) {
		return s.cfg.Validation
	}
	return filepath.Join(s.set.Env.Dir, s.cfg.Validation)
}

// find returns the usable images, those of validation last, and sets the others
// aside.
func (s *stage) find(ctx context.Context, store *cache.Store) ([]picture, error) {
	folder, held := string(s.cfg.Folder), s.validationFolder()
	var skip, controls []string
	for _, p := range s.cfg.ControlPath {
		controls = append(controls, string(p))
	}
	for _, p := range append(controls, held) {
		if real, err := filepath.EvalSymlinks(p); p != "" && err == nil {
			skip = append(skip, real)
		}
	}
	train, err := scanFolder(ctx, folder, s.cfg.captionExt(), skip)
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	var refs *references
	if len(controls) > 0 {
		if refs, err = scanReferences(ctx, controls); err != nil {
			return nil, err
		}
	}
	images, faults := train.images, train.aside
	if held != "" {
		v, err := scanFolder(ctx, held, s.cfg.captionExt(), nil)
		if err != nil {
			return nil, fmt.Errorf("validation: %w", err)
		}
		images, faults = append(images, v.images...), append(faults, v.aside...)
	}
	r := reader{cfg: s.cfg, store: store, refs: refs, stopping: s.set.Env.Stopping()}
	r.progress = throttled(len(images), func(done int) { s.set.Progress(ctx, done, len(images), "images") })
	all, err := r.read(ctx, images)
	if err != nil {
		return nil, err
	}
	var usable []picture
	for i, p := range all {
		if p.err != nil {
			faults = append(faults, fault{p.path, p.err})
			continue
		}
		p.validation = i >= len(train.images)
		p.id = s.set.ID + "/" + shown(p.rel)
		if p.validation {
			p.id = s.set.ID + "/validation:" + shown(p.rel)
		}
		usable = append(usable, p)
	}
	if refs != nil {
		faults = append(faults, refs.aside...)
	}
	slices.SortStableFunc(faults, func(a, b fault) int { return strings.Compare(a.path, b.path) })
	for _, f := range faults {
		s.set.SetAside(ctx, shown(f.path), f.err)
	}
	s.set.Summarise("images found", len(images))
	s.set.Summarise("images set aside", len(faults))
	if n, _ := s.cfg.validationCount(); n > 0 {
		s.hold(usable, n)
	}
	if !slices.ContainsFunc(usable, func(p picture) bool { return !p.validation }) {
		return nil, nothingUsable(folder, len(usable), faults, train.others)
	}
	return usable, nil
}

// hold marks n images for validation: those that come first in an order drawn
// from the seed and each image's id, so that adding images changes few of them.
func (s *stage) hold(pictures []picture, n int) {
	rank := func(p picture) uint64 { return rng.New(s.set.Env.Seed, "dataset/validation", p.id).Uint64(0) }
	order := make([]int, len(pictures))
	ranks := make([]uint64, len(pictures))
	for i, p := range pictures {
		order[i], ranks[i] = i, rank(p)
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(ranks[a], ranks[b]), strings.Compare(pictures[a].id, pictures[b].id))
	})
	for _, i := range order[:min(n, len(order))] {
		pictures[i].validation = true
	}
}

// samples makes the samples of the pictures, in their order: one a resolution.
func (s *stage) samples(pictures []picture) []port.Sample {
	dropped := s.cfg.TriggerWord
	out := make([]port.Sample, 0, len(pictures)*len(s.cfg.Resolution))
	for _, p := range pictures {
		for _, r := range s.cfg.Resolution {
			sample := port.Sample{
				ID: fmt.Sprintf("%s@%d", p.id, r), Dataset: s.set.ID, Path: []byte(p.path),
				Caption: p.text, Dropout: s.cfg.CaptionDropout, Dropped: dropped,
				Width: p.width, Height: p.height, Orientation: p.orientation,
				Alpha: s.cfg.Alpha, Content: p.content,
				Resolution: r, Bucket: bucketOf(p.width, p.height, r),
				Repeats: s.cfg.NumRepeats, Weight: s.cfg.LossMultiplier,
				References: p.references,
			}
			if p.validation { // measured once each, on its caption, at full weight
				sample.Validation, sample.Dropout, sample.Repeats, sample.Weight = true, 0, 1, 1
			}
			out = append(out, sample)
		}
	}
	return out
}
