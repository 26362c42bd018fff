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
	found, err := s.find(ctx, store)
	if errors.Is(err, errStopped) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range found.aside {
		s.set.SetAside(ctx, shown(f.path), f.err)
	}
	if err := found.usable(string(s.cfg.Folder)); err != nil {
		return err
	}
	samples := s.samples(found.pictures)
	if err := port.PutSamples(ctx, store, s.listName(), samples); err != nil {
		return err
	}
	s.report(found, samples)
	return port.SendAll(ctx, s.out, samples)
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

// finding is what the folders hold.
type finding struct {
	pictures []picture      // usable; those of a validation folder last
	aside    []fault        // what cannot be used, by path
	images   int            // files looked at
	asked    int            // images that validation asks for
	others   map[string]int // other files by ending
}

// find walks the folders and looks at every image.
func (s *stage) find(ctx context.Context, store *cache.Store) (*finding, error) {
	names, err := s.scan(ctx)
	if err != nil {
		return nil, err
	}
	out := names.finding()
	images := slices.Concat(names.train.images, names.held.images)
	r := reader{cfg: s.cfg, store: store, refs: names.refs, stopping: s.set.Env.Stopping()}
	r.progress = s.set.Meter(ctx, "images")
	all, err := r.read(ctx, images)
	if err != nil {
		return nil, err
	}
	out.images = len(all)
	for i, p := range all {
		if p.err != nil {
			out.aside = append(out.aside, fault{p.path, p.err})
			continue
		}
		p.id = s.set.ID + "/" + shown(p.rel)
		if p.validation = i >= len(names.train.images); p.validation {
			p.id = s.set.ID + "/validation:" + shown(p.rel)
		}
		out.pictures = append(out.pictures, p)
	}
	slices.SortStableFunc(out.aside, func(a, b fault) int { return strings.Compare(a.path, b.path) })
	out.asked, _ = s.cfg.validationCount()
	hold(out.pictures, out.asked, s.set.Env.Seed)
	return out, nil
}

// hold marks n images for validation: those that come first in an order drawn
// from the seed and each image's id, so that adding images changes few of them.
func hold(pictures []picture, n int, seed uint64) {
	if n == 0 {
		return // those of a validation folder are marked already
	}
	type ranked struct {
		rank uint64
		p    *picture
	}
	order := make([]ranked, len(pictures))
	for i := range pictures {
		p := &pictures[i]
		order[i] = ranked{rng.New(seed, "dataset/validation", p.id).Uint64(0), p}
	}
	slices.SortFunc(order, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.p.id, b.p.id))
	})
	for _, r := range order[:min(n, len(order))] {
		r.p.validation = true
	}
}

// samples makes the samples of the pictures, in their order: one a resolution.
func (s *stage) samples(pictures []picture) []port.Sample {
	out := make([]port.Sample, 0, len(pictures)*len(s.cfg.Resolution))
	for _, p := range pictures {
		for _, r := range s.cfg.Resolution {
			sample := port.Sample{
				ID: fmt.Sprintf("%s@%d", p.id, r), Dataset: s.set.ID, Path: []byte(p.path),
				Caption: p.text, Dropout: s.cfg.CaptionDropout, Dropped: s.cfg.TriggerWord,
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
