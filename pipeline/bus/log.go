package bus

import (
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/hashicorp/go-hclog"
)

// Logger lets Watermill log through an hclog.Logger.
func Logger(log hclog.Logger) watermill.LoggerAdapter { return logger{log} }

type logger struct{ log hclog.Logger }

func (l logger) Error(msg string, err error, fields watermill.LogFields) {
	l.log.Error(msg, append(pairs(fields), "error", err)...)
}
func (l logger) Info(msg string, fields watermill.LogFields)  { l.log.Info(msg, pairs(fields)...) }
func (l logger) Debug(msg string, fields watermill.LogFields) { l.log.Debug(msg, pairs(fields)...) }
func (l logger) Trace(msg string, fields watermill.LogFields) { l.log.Trace(msg, pairs(fields)...) }

func (l logger) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return logger{l.log.With(pairs(fields)...)}
}

// pairs lists fields in a fixed order.
func pairs(fields watermill.LogFields) []any {
	args := make([]any, 0, 2*len(fields)+2)
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		args = append(args, k, fields[k])
	}
	return args
}
