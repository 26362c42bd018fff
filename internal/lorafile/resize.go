package lorafile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"longship/internal/dtype"
	"longship/internal/lorafile/lowrank"
)

// Resized is what became of one pair.
type Resized struct {
	Module string  `json:"module"`
	From   int     `json:"from"` // ranks
	To     int     `json:"to"`
	Kept   float64 `json:"kept"`  // share of the energy ‖ΔW‖² that is kept
	Norm   float64 `json:"norm"`  // ‖ΔW‖ before
	Exact  bool    `json:"exact"` // Kept and Norm are no estimates from random probes
}

// Resize writes the weighted sum of adapters with every pair brought to a lower
// rank, or to the least rank that keeps a share of its energy. One pair is in
// memory at a time; results wait in a file beside the output. each, where not
// nil, is told of every pair as it is done. LoKr and LoHa become LoRAs.
func Resize(ctx context.Context, from []Weighted, o Output, want lowrank.Want, each func(done, of int, r Resized)) ([]Resized, error) {
	if want.Rank < 0 || want.Energy < 0 || want.Energy > 1 || want.Rank == 0 && want.Energy == 0 {
		return nil, fmt.Errorf("rank %d and energy %g: one of them must be said, a rank from 1 or a share up to 1", want.Rank, want.Energy)
	}
	adapters, shares, err := openAll(from, o)
	defer closeAll(adapters)
	if err != nil {
		return nil, err
	}
	ts, err := targets(adapters, shares, o.fused())
	if err != nil {
		return nil, err
	}
	spool, err := newSpool(filepath.Dir(filepath.Clean(o.Path)))
	if err != nil {
		return nil, err
	}
	defer spool.close()
	var pairs []*written
	var report []Resized
	for i, t := range ts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, r, err := t.resize(want, spool)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.at.name(), err)
		}
		for _, x := range t.terms {
			for _, part := range x.e.t {
				part.Drop()
			}
		}
		pairs, report = append(pairs, p), append(report, r)
		if each != nil {
			each(i+1, len(ts), r)
		}
	}
	return report, o.write(ctx, adapters[0].Metadata, pairs, nil)
}

// resize truncates one target into the spool.
func (t *target) resize(want lowrank.Want, s *spool) (*written, Resized, error) {
	a, b, err := t.pair(true)
	if err != nil {
		return nil, Resized{}, err
	}
	res, err := lowrank.Truncate(a.v, b.v, a.cols, b.rows, a.rows, want)
	if err != nil {
		return nil, Resized{}, err
	}
	at, err := s.put(res.A, res.B)
	if err != nil {
		return nil, Resized{}, err
	}
	p := &written{at: t.at, rank: res.Rank, in: t.in, out: b.rows, alpha: float64(res.Rank), dtype: t.dtype}
	p.load = func() (matrix, matrix, error) {
		a, b := newMatrix(p.rank, p.in), newMatrix(p.out, p.rank)
		return a, b, s.get(at, a.v, b.v)
	}
	return p, Resized{Module: t.at.name(), From: a.rows, To: res.Rank, Kept: res.Kept, Norm: root(res.Total), Exact: res.Exact}, nil
}

// spool is a file for results that wait to be written.
type spool struct {
	f    *os.File
	size int64
}

func newSpool(dir string) (*spool, error) {
	f, err := os.CreateTemp(dir, ".longship-resize-*")
	return &spool{f: f}, err
}

func (s *spool) put(values ...[]float32) (at int64, err error) {
	at = s.size
	for _, v := range values {
		n, err := s.f.WriteAt(dtype.Bytes(v), s.size)
		if err != nil {
			return 0, err
		}
		s.size += int64(n)
	}
	return at, nil
}

func (s *spool) get(at int64, values ...[]float32) error {
	for _, v := range values {
		raw := dtype.Bytes(v)
		if _, err := s.f.ReadAt(raw, at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		at += int64(len(raw))
	}
	return nil
}

func (s *spool) close() {
	s.f.Close()
	os.Remove(s.f.Name())
}
