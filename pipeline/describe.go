package pipeline

import (
	"context"
	"io"
	"reflect"

	"github.com/hashicorp/go-hclog"
)

// PortInfo describes a port.
type PortInfo struct {
	Name      string
	Type      string // of its values, "port.Sample"
	Direction string // "in", "out", "lend" or "borrow"
	Message   bool   // its values travel as messages; else they are handed over
	Optional  bool
	Needs     []string // what an input's values must carry
	Adds      []string // what an output's values carry beyond what they forward
	Forwards  string   // the input whose values an output forwards, enriched
	Single    bool     // an input that takes one source only

	MessageType string // what its values call themselves, where they travel as messages
}

// Describe describes the ports of a stage.
func Describe(s Stage) []PortInfo {
	var list []PortInfo
	for _, pt := range s.Ports() {
		p := pt.port()
		info := PortInfo{
			Name: p.name, Type: p.elem.String(), Direction: p.dir.String(), Message: p.message,
			Optional: p.optional, Needs: p.needs, Adds: p.adds,
		}
		if p.forwards != nil {
			info.Forwards = p.forwards.name
		}
		info.Single = p.single
		if m, ok := reflect.Zero(p.elem).Interface().(Message); ok && p.elem.Kind() != reflect.Pointer {
			info.MessageType = m.MessageType()
		}
		list = append(list, info)
	}
	return list
}

// Ports describes the ports of the stages that f makes with its default config.
func (f Factory) Ports() ([]PortInfo, error) {
	s, err := f.New(Settings{ID: f.Type, Log: hclog.NewNullLogger(), Env: &Env{}}, f.Default())
	if err != nil {
		return nil, inStage(f.Type, err)
	}
	return Describe(s), nil
}

// KeyInfo describes a key of a config, or of a pipeline's head.
type KeyInfo struct {
	Path    string // below the stage's config, "network.rank"
	Default any
	Doc     string // of the `doc` tag
}

// Keys describes the keys of the stage's config, in its order; a struct is
// described by the keys in it.
func (f Factory) Keys() []KeyInfo { return keysOf(reflect.ValueOf(f.Default()).Elem(), "") }

// HeadKeys describes the keys above `stages:`. The default of name is that of
// the file.
func HeadKeys() []KeyInfo { return keysOf(reflect.ValueOf(defaultHead("")), "") }

func keysOf(v reflect.Value, place string) (keys []KeyInfo) {
	for _, f := range fieldsOf(v.Type()) {
		value := v.FieldByIndex(f.index)
		if value.Kind() == reflect.Struct {
			keys = append(keys, keysOf(value, place+f.key+".")...)
			continue
		}
		keys = append(keys, KeyInfo{Path: place + f.key, Default: value.Interface(), Doc: f.doc})
	}
	return keys
}

// Starve connects every input of a stage to a source that never sends and never
// ends. It is for tests of what a stage does when it is cancelled meanwhile.
func Starve(s Stage) {
	for _, p := range s.Ports() {
		if in, ok := p.(sink); ok {
			in.starve()
		}
	}
}

func (i *In[T]) starve() {
	i.p.connected = true
	i.feeds = append(i.feeds, silence[T]{})
}

func (b *Borrow[T]) starve() {
	b.p.connected = true
	b.edge = &loanEdge[T]{}
}

// silence is an edge on which nothing ever comes.
type silence[T any] struct{}

func (silence[T]) receive(ctx context.Context, done <-chan struct{}) (d delivery[T], err error) {
	select {
	case <-ctx.Done():
		return d, ctx.Err()
	case <-done:
		return d, io.EOF
	}
}

func (silence[T]) leave() {}
