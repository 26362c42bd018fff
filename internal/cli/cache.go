package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/hashicorp/go-hclog"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"longship/cache"
)

func (a *app) cacheCommand() *cobra.Command {
	return group("cache", "Look into a cache folder, check it, or free space in it", a.cacheList(), a.cacheVerify(), a.cacheGC())
}

// cacheFlags are what the cache commands share.
type cacheFlags struct{ wait, json bool }

func (f *cacheFlags) add(cmd *cobra.Command) {
	cmd.Args = needs("the folder of the cache", 1, 1)
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait while another process has the cache, instead of failing")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
}

// with opens an existing cache for fn.
func (a *app) with(ctx context.Context, dir string, f cacheFlags, fn func(*cache.Store) error) error {
	log := hclog.New(&hclog.LoggerOptions{Name: "longship", Level: hclog.Warn, Output: a.err, DisableTime: true})
	s, err := cache.Open(ctx, dir, cache.Options{Wait: f.wait, Log: log, Run: "longship cache", Existing: true})
	if err != nil {
		return named(err)
	}
	return errors.Join(fn(s), s.Close())
}

func (a *app) cacheList() *cobra.Command {
	var f cacheFlags
	cmd := &cobra.Command{
		Use:   "ls FOLDER",
		Short: "List the tensors in a cache, last used first",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), args[0], f, func(s *cache.Store) error {
				var entries []cache.Entry
				var bytes int64
				for e, err := range s.List(cmd.Context()) {
					if err != nil {
						return err
					}
					entries = append(entries, e)
					bytes += e.Bytes
				}
				slices.SortStableFunc(entries, func(x, y cache.Entry) int { return y.Used.Compare(x.Used) })
				kept, err := s.KeptFiles()
				if err != nil {
					return err
				}
				if f.json {
					for _, k := range kept {
						if err := printJSON(a.out, map[string]any{"file": k.Path, "kind": k.Kind, "bytes": k.Bytes, "used": k.Used}); err != nil {
							return err
						}
					}
					for _, e := range entries {
						if err := printJSON(a.out, map[string]any{"key": e.Ref.Key.String(), "kind": e.Ref.Kind, "dtype": e.Ref.DType, "shape": e.Ref.Shape, "bytes": e.Bytes, "used": e.Used}); err != nil {
							return err
						}
					}
					return nil
				}
				t := newTable(a.out, fmt.Sprintf("%s: %d tensors, %s", s.Dir(), len(entries), humanize.IBytes(uint64(bytes))))
				t.AppendHeader(table.Row{"key", "type", "shape", "bytes", "used"})
				for _, e := range entries {
					t.AppendRow(table.Row{e.Ref.Key.String()[:16], e.Ref.DType, fmt.Sprint(e.Ref.Shape), e.Bytes, e.Used.Format(time.DateTime)})
				}
				t.Render()
				if len(kept) > 0 {
					t := newTable(a.out, fmt.Sprintf("%d kept files", len(kept)))
					t.AppendHeader(table.Row{"file", "kind", "size", "used"})
					for _, k := range kept {
						t.AppendRow(table.Row{filepath.Base(k.Path), k.Kind, humanize.IBytes(uint64(k.Bytes)), k.Used.Format(time.DateTime)})
					}
					t.Render()
				}
				return nil
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) cacheVerify() *cobra.Command {
	var f cacheFlags
	cmd := &cobra.Command{
		Use:   "verify FOLDER",
		Short: "Read everything in a cache and check it; what is damaged is dropped, to be made again",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), args[0], f, func(s *cache.Store) error {
				r, err := s.Verify(cmd.Context(), func(int, int) {})
				if err != nil {
					return err
				}
				if f.json {
					if err := printJSON(a.out, map[string]any{"entries": r.Entries, "tensors": r.Tensors, "bytes": r.Bytes, "damaged": keys(r.Damaged)}); err != nil {
						return err
					}
				} else {
					fmt.Fprintf(a.out, "%s: read %d entries, of them %d tensors of %s\n", s.Dir(), r.Entries, r.Tensors, humanize.IBytes(uint64(r.Bytes)))
					for _, e := range r.Damaged {
						fmt.Fprintf(a.out, "damaged and dropped: %s\n", e.Ref)
					}
				}
				if n := len(r.Damaged); n > 0 {
					return fmt.Errorf("%d tensors were damaged; the next run makes them again", n)
				}
				return nil
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) cacheGC() *cobra.Command {
	var f cacheFlags
	var unused time.Duration
	var unlisted bool
	cmd := &cobra.Command{
		Use:   "gc FOLDER",
		Short: "Remove what is stale from a cache, and give its space back",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), args[0], f, func(s *cache.Store) error {
				opt := cache.GCOptions{Unlisted: unlisted}
				if unused > 0 {
					opt.UnusedSince = time.Now().Add(-unused)
				}
				r, err := s.GC(cmd.Context(), opt)
				if err != nil {
					return err
				}
				if f.json {
					return printJSON(a.out, map[string]any{"tensors": r.Tensors, "bytes": r.Bytes, "kept": paths(r.Kept), "files": r.Files, "facts": r.Facts,
						"set_aside": append([]string{}, r.Aside...), "damaged": keys(r.Damaged), "disk_before": r.Before, "disk_after": r.After})
				}
				fmt.Fprintf(a.out, "%s: removed %d tensors of %s, %d kept files, %d records of files, %d facts, %d folders set aside; %s on disk, %s before\n",
					s.Dir(), r.Tensors, humanize.IBytes(uint64(r.Bytes)), len(r.Kept), r.Files, r.Facts, len(r.Aside), humanize.IBytes(uint64(r.After)), humanize.IBytes(uint64(r.Before)))
				return nil
			})
		},
	}
	f.add(cmd)
	cmd.Flags().DurationVar(&unused, "unused-for", 0, "remove tensors and kept files (quantised models) that were not used for so long, 720h")
	cmd.Flags().BoolVar(&unlisted, "unlisted", false, "remove tensors that belong to no sample list that a run recorded here")
	return cmd
}

func paths(files []cache.KeptFile) []string {
	out := []string{}
	for _, f := range files {
		out = append(out, f.Path)
	}
	return out
}

func keys(entries []cache.Entry) []string {
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Ref.Key.String())
	}
	return out
}
