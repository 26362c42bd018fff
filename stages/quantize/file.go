package quantize

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/dustin/go-humanize"
	"github.com/hashicorp/go-hclog"
	"github.com/shirou/gopsutil/v4/disk"
	"golang.org/x/sync/errgroup"

	"longship/cache"
	"longship/cache/atomicfile"
	"longship/gpu/memory"
	"longship/internal/quant"
	"longship/internal/weights"
	"longship/pipeline"
)

// kind is what quantised files are called among a cache's kept files.
const kind = "quantised"

// domain names what decides a file's name. Its version is raised when other
// bytes are written for the same source and settings.
const domain = "quantised/1"

// file is the quantised file of a model.
type file struct {
	model        *weights.Transformer
	store        *cache.Store
	env          *pipeline.Env
	qtype, outer string
	log          hclog.Logger
	progress     func(done, total int64)
}

// get returns the weights in the file, and how they came to be there. A file
// that is not there, or is damaged, is made; once, should several stages of a
// run ask for the same.
func (f *file) get(ctx context.Context) (set *memory.WeightSet, how string, err error) {
	source, err := f.source(ctx)
	if err != nil {
		return nil, "", err
	}
	key := cache.NewKey(domain).Key(source).Text(f.qtype).Text(f.outer).Sum()
	path, err := f.store.Kept(kind, key.String()+quant.Extension)
	if err != nil {
		return nil, "", err
	}
	how, err = pipeline.Shared(ctx, f.env, "quantised:"+path, func(ctx context.Context) (string, error) {
		return f.ensure(ctx, path, source)
	})
	if err != nil {
		return nil, "", err
	}
	set, err = quant.Open(path)
	return set, how, err
}

// ensure sees to it that the file is there and whole.
func (f *file) ensure(ctx context.Context, path string, source cache.Key) (how string, err error) {
	err = f.verify(ctx, path, source)
	switch {
	case err == nil:
		return "kept from an earlier run", f.store.Keep(path)
	case errors.Is(err, fs.ErrNotExist):
		return "quantised", f.make(ctx, path, source)
	case errors.Is(err, quant.ErrFormat), errors.Is(err, memory.ErrDamaged):
		f.log.Warn("the quantised file is damaged and is made again", "file", path, "cause", err)
		return "quantised again, the file was damaged", f.make(ctx, path, source)
	}
	return "", err
}

// source identifies the weights by the content of their files, wherever those
// are and whatever they are called, and by the model's config. Known files are
// not read.
func (f *file) source(ctx context.Context) (cache.Key, error) {
	paths := f.model.Set.Files()
	contents := make([]cache.Key, len(paths))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, path := range paths {
		g.Go(func() error {
			info, err := f.store.File(ctx, path)
			contents[i] = info.Content
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return cache.Key{}, fmt.Errorf("identify the weights: %w", err)
	}
	slices.SortFunc(contents, func(a, b cache.Key) int { return slices.Compare(a[:], b[:]) })
	b := cache.NewKey("transformer").Bytes(f.model.Config.JSON())
	for _, c := range contents {
		b.Key(c)
	}
	return b.Sum(), nil
}

// verify reads the whole file and compares checksums. The units are read later
// on anyway, and a fault that is found now costs no more than making the file again.
func (f *file) verify(ctx context.Context, path string, source cache.Key) error {
	set, err := quant.Open(path)
	if err != nil {
		return err
	}
	if set.Source != source.String() || set.QType != f.qtype {
		err = fmt.Errorf("%w: it holds other weights than its name says", quant.ErrFormat)
	} else {
		err = quant.Verify(ctx, set, f.progress)
	}
	return errors.Join(err, set.Close())
}

// make quantises the model.
func (f *file) make(ctx context.Context, path string, source cache.Key) error {
	opt := quant.Options{QType: f.qtype, Outer: f.outer, Source: source.String(), Progress: f.progress}
	size, err := quant.Size(f.model, opt)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := sweep(dir, path); err != nil {
		return err
	}
	if err := room(dir, size); err != nil {
		return err
	}
	err = quant.Write(ctx, path, f.model, opt)
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w; %s", err, wayOut)
	}
	if err != nil {
		return err
	}
	again, err := f.source(ctx)
	if err == nil && again != source {
		err = fmt.Errorf("the weights in %s changed while they were quantised", f.model.Set.Path())
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// sweep makes room: it removes the file at path, which is damaged, and what runs
// that were killed have left half written. The cache's lock is held, so nobody
// else is writing.
func sweep(dir, path string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if at := filepath.Join(dir, e.Name()); at == path || strings.HasSuffix(at, quant.Extension+atomicfile.Partial) {
			if err := os.Remove(at); err != nil {
				return err
			}
		}
	}
	return nil
}

const wayOut = "free some space, or set cache of quantize to a folder on another disk"

// room checks that the disk of dir has space for size bytes.
func room(dir string, size int64) error {
	use, err := disk.Usage(dir)
	if err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if use.Free < uint64(size) {
		return fmt.Errorf("the quantised weights take %s in %s, where %s are free: %s",
			humanize.IBytes(uint64(size)), dir, humanize.IBytes(use.Free), wayOut)
	}
	return nil
}
