package dataset

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// references finds the reference images of images: in each control folder, the
// file with an image's name but for the ending, in the same place below the
// folder or right in it.
type references struct {
	folders []string
	byStem  []map[string]string // per folder: path below it without its ending -> path
	aside   []fault
}

func scanReferences(ctx context.Context, folders []string) (*references, error) {
	r := &references{folders: folders}
	for _, folder := range folders {
		s, err := scanFolder(ctx, folder, ".txt", nil)
		if err != nil {
			return nil, err
		}
		stems := map[string]string{}
		for _, f := range s.images {
			if _, twice := stems[stem(f.rel)]; !twice {
				stems[stem(f.rel)] = f.path
			}
		}
		r.byStem = append(r.byStem, stems)
		r.aside = append(r.aside, s.aside...)
	}
	return r, nil
}

// of returns the paths of an image's reference images, one a folder.
func (r *references) of(rel string) ([]string, error) {
	paths := make([]string, len(r.folders))
	for i, stems := range r.byStem {
		path, ok := stems[stem(rel)]
		if !ok {
			path, ok = stems[stem(filepath.Base(rel))]
		}
		if !ok {
			return nil, fmt.Errorf("no reference image %s.* in %s", shown(stem(rel)), shown(r.folders[i]))
		}
		paths[i] = path
	}
	return paths, nil
}

func stem(path string) string { return strings.TrimSuffix(path, filepath.Ext(path)) }
