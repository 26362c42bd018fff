package dataset

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"longship/internal/cachefill"
	"longship/pipeline"
)

// names are what the folders hold, by name: no file is opened.
type names struct {
	train *scan
	held  *scan       // the validation folder; empty where there is none
	refs  *references // nil where there are no reference images
}

// scan walks all folders. Each that cannot be used is a fault at its key.
func (s *stage) scan(ctx context.Context) (*names, error) {
	held := s.validationFolder()
	var controls []string
	for _, p := range s.cfg.ControlPath {
		controls = append(controls, string(p))
	}
	n := &names{held: &scan{}}
	var errs []error
	fault := func(key string, err error) {
		if err != nil {
			errs = append(errs, &pipeline.FieldError{Path: key, Msg: err.Error(), Err: err})
		}
	}
	var skip []string
	apart := func(key, path string) {
		real, err := s.apart(path)
		fault(key, err)
		skip = append(skip, real)
	}
	if held != "" {
		apart("validation", held)
	}
	for _, p := range controls {
		apart("control_path", p)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var err error
	n.train, err = scanFolder(ctx, string(s.cfg.Folder), s.cfg.captionExt(), skip)
	fault("folder", err)
	if held != "" {
		n.held, err = scanFolder(ctx, held, s.cfg.captionExt(), nil)
		fault("validation", err)
	}
	if len(controls) > 0 {
		n.refs, err = scanReferences(ctx, controls)
		fault("control_path", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return n, errors.Join(errs...)
}

// apart returns the real path of a folder of other images, which is left out
// where the folder of images is walked: it must not hold that one.
func (s *stage) apart(path string) (real string, err error) {
	folder, err := filepath.EvalSymlinks(string(s.cfg.Folder))
	if err != nil {
		return "", nil // told where it is walked
	}
	if real, err = filepath.EvalSymlinks(path); err != nil {
		return "", nil
	}
	rel, err := filepath.Rel(real, folder)
	if err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return "", fmt.Errorf("%s holds the images to train on: name a folder below or beside theirs", shown(path))
	}
	return real, nil
}

// finding is what is known before any image is looked at.
func (n *names) finding() *finding {
	f := &finding{others: n.train.others}
	f.aside = append(f.aside, n.train.aside...)
	f.aside = append(f.aside, n.held.aside...)
	if n.refs != nil {
		f.aside = append(f.aside, n.refs.aside...)
	}
	return f
}

// Check walks the folders and counts images by their names.
func (s *stage) Check(ctx context.Context) error {
	n, err := s.scan(ctx)
	if err == nil {
		err = s.enough(n)
	}
	return errors.Join(err, cachefill.Check(s.cfg.Cache))
}

// enough says whether there are images to train on, as far as names tell.
func (s *stage) enough(n *names) error {
	images := len(n.train.images)
	if images == 0 {
		return &pipeline.FieldError{Path: "folder", Msg: n.finding().usable(string(s.cfg.Folder)).Error()}
	}
	if asked, _ := s.cfg.validationCount(); asked >= images {
		return &pipeline.FieldError{Path: "validation", Msg: fmt.Sprintf("%d images are asked for and %s holds %d: none is left to train on", asked, shown(string(s.cfg.Folder)), images)}
	}
	if s.validationFolder() != "" && len(n.held.images) == 0 {
		return &pipeline.FieldError{Path: "validation", Msg: fmt.Sprintf("no image in %s", shown(s.validationFolder()))}
	}
	s.set.Summarise("images by name", images+len(n.held.images))
	return nil
}
