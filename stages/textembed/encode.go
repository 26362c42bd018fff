package textembed

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"longship/cache"
	"longship/gpu"
	"longship/internal/cachefill"
	"longship/internal/mistral"
	"longship/internal/qwen3"
	"longship/internal/texttower"
	"longship/internal/tokenizer"
)

// Options say how captions are encoded. Fields have the meaning of Config's.
type Options struct {
	TextEncoder string // folder of the text tower
	Tokenizer   string // folder of tokenizer.json
	QType       string
	Offload     float64
	Layers      []int
	MaxLength   int
	Precision   string
	Batch       int
}

// Encode puts the embeddings of captions into a cache, without a pipeline, and
// returns where they are, in the order of captions. Embeddings that are in the
// cache already cost a look-up: the tower is loaded, and the device used, only
// if one is missing, and its memory is given back before Encode returns. Zero
// fields of opt take the stage's defaults.
func Encode(ctx context.Context, store *cache.Store, dev gpu.Device, captions []string, opt Options) ([]cache.Ref, error) {
	opt = opt.withDefaults()
	m, err := openModel(opt)
	if err != nil {
		return nil, err
	}
	ks, err := newKeys(ctx, store, m.files, m.prompts, opt)
	if err != nil {
		return nil, errors.Join(err, m.files.Close())
	}
	w := work{store: store, keys: ks, batch: opt.Batch, open: func(ctx context.Context) (encoder, error) {
		return m.load(ctx, dev, nil)
	}}
	refs, _, err := w.run(ctx, captions)
	return refs, errors.Join(err, m.files.Close())
}

func (o Options) withDefaults() Options {
	d := Default()
	o.QType, o.Precision = cmp.Or(o.QType, d.QType), cmp.Or(o.Precision, d.Precision)
	o.MaxLength, o.Batch = cmp.Or(o.MaxLength, d.MaxLength), cmp.Or(o.Batch, d.Batch)
	return o
}

// encoder is a text tower that is ready. Encode gives the stored rows of each
// caption's embedding to put, in order.
type encoder interface {
	Encode(ctx context.Context, captions []string, put func(i int, rows []float32) error) error
	Close() error
}

// model is a tower on disk with its prompts.
type model struct {
	opt     Options
	files   *texttower.Files
	prompts *texttower.Prompter
	tooLong func(caption string, cut int)
}

func openModel(opt Options) (*model, error) {
	files, err := texttower.Open(opt.TextEncoder, opt.Layers, mistral.Family(), qwen3.Family())
	if err != nil {
		if _, err2 := tokenizer.Load(opt.Tokenizer); err2 != nil { // told along
			err = errors.Join(err, fmt.Errorf("tokenizer: %w", err2))
		}
		return nil, err
	}
	prompts, err := texttower.NewPrompter(opt.Tokenizer, files.Family, opt.MaxLength)
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	return &model{opt: opt, files: files, prompts: prompts}, nil
}

// tower runs prompts through a loaded tower.
type tower struct {
	*texttower.Tower
	prompts *texttower.Prompter
	tooLong func(caption string, cut int) // told of captions that lose their last tokens; it may be nil
}

func (m *model) load(ctx context.Context, dev gpu.Device, progress func(done, total int64)) (encoder, error) {
	t, err := m.files.Load(ctx, dev, m.towerOptions(progress))
	if err != nil {
		return nil, err
	}
	return tower{t, m.prompts, m.tooLong}, nil
}

func (m *model) towerOptions(progress func(done, total int64)) texttower.Options {
	return texttower.Options{QType: m.opt.QType, Offload: m.opt.Offload, Tokens: m.opt.MaxLength, Batch: m.opt.Batch, Progress: progress}
}

// Encode tokenises, runs the tower, and leaves out repeated pad rows.
func (t tower) Encode(ctx context.Context, captions []string, put func(i int, rows []float32) error) error {
	prompts := make([]texttower.Prompt, len(captions))
	for i, c := range captions {
		prompts[i] = t.prompts.Prompt(c)
		if cut := prompts[i].Cut; cut > 0 && t.tooLong != nil {
			t.tooLong(c, cut)
		}
	}
	return t.Tower.Encode(ctx, prompts, func(i int, rows []float32) error {
		return put(i, prompts[i].Stored(rows))
	})
}

// work encodes a list of captions.
type work struct {
	store *cache.Store
	keys  keys
	batch int
	// open gives the encoder; its Close gives back all that it holds. Called at
	// most once a run.
	open func(ctx context.Context) (encoder, error)
	// progress is told how many of the missing embeddings are there; it may be nil.
	progress func(done, total int64)
	// stopped says that the work must end after the batch in hand; it may be nil.
	stopped func() bool
}

// counts says what a run has done.
type counts struct{ hits, encoded int }

// errStopped says that the user asked for an end.
var errStopped = errors.New("stopped on request")

// run returns the refs of captions. Each different caption that is missing is
// encoded once.
func (w work) run(ctx context.Context, captions []string) (refs []cache.Ref, n counts, err error) {
	refs = make([]cache.Ref, len(captions))
	for i, c := range captions {
		refs[i] = w.keys.ref(c)
	}
	missing, err := cachefill.Missing(ctx, w.store, refs)
	if err != nil {
		return nil, n, err
	}
	n.hits = len(refs) - len(missing)
	if len(missing) == 0 {
		return refs, n, nil
	}
	enc, err := w.open(ctx)
	if err != nil {
		return nil, n, err
	}
	defer func() { err = errors.Join(err, enc.Close()) }()
	for lo := 0; lo < len(missing); lo += w.batch {
		if w.stopped != nil && w.stopped() {
			return nil, n, errStopped
		}
		part := missing[lo:min(lo+w.batch, len(missing))]
		texts := make([]string, len(part))
		for k, i := range part {
			texts[k] = captions[i]
		}
		err := enc.Encode(ctx, texts, func(k int, rows []float32) error {
			ref := refs[part[k]]
			n.encoded++
			return w.store.Put(ctx, ref, cachefill.Bytes(rows, ref.DType))
		})
		if err != nil {
			return nil, n, err
		}
		if w.progress != nil {
			w.progress(int64(n.encoded), int64(len(missing)))
		}
	}
	return refs, n, nil
}
