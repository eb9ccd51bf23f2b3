package dataset

import (
	"bufio"
	"cmp"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/regularfile"
)

// Format is the form of a dataset's file.
type Format string

// The formats. All are UTF-8, with or without a byte order mark, and may be gzipped, which is recognised from the
// content.
const (
	JSONLines Format = "jsonl" // one object a line
	JSON      Format = "json"  // a list of objects, or one object
	CSV       Format = "csv"   // a header and one row a record, quoted with "
)

// Options define how to read a dataset.
type Options struct {
	// Name is the dataset's name for errors; empty if it has none.
	Name string
	// Format is the file's form.
	Format Format
	// Fields maps columns to the fields of samples. The zero Fields takes the columns of the fields' names.
	Fields Fields
	// AutoID numbers the samples from 1 although the file may have ids.
	AutoID bool
	// ShuffleChoices is the seed by which to shuffle the choices of each sample; nil leaves them.
	ShuffleChoices *int64
	// Delimiter separates the cells of CSV, one character. Empty is a comma.
	Delimiter string
	// Columns names the columns of CSV without a header. Nil takes the names from the first record.
	Columns []string
	// Dir is the directory of the files that samples name. If empty, all such values are contents.
	Dir string
	// MaxBytes bounds the file after decompression. Zero is [bound.DatasetBytes].
	MaxBytes int64
	// MaxValues bounds the values of all rows, keys included. Zero is [bound.DatasetValues].
	MaxValues int
}

// at names the file in an *Error.
func at(path string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.File = path
	}
	return err
}

// Each reads a dataset from a stream with a given Format, and calls f with each sample in the order of the file,
// without keeping it. Faults of the content, and content beyond the bounds of pkg/bound, are an *Error. Faults of the
// stream keep their kind. The end of ctx, or an error of f, stops the reading.
func Each(ctx context.Context, r io.Reader, opts Options, f func(Sample) error) error {
	plan, err := opts.Fields.compile()
	if err != nil {
		return err
	}
	resolve, closeDir, err := newResolver(opts.Dir)
	if err != nil {
		return err
	}
	defer closeDir()
	var shuffle *choiceShuffle
	if opts.ShuffleChoices != nil {
		shuffle = newChoiceShuffle(opts.Name, *opts.ShuffleChoices)
	}
	count := 0
	for row, err := range rows(regularfile.ContextReader(ctx, r), plan, opts) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return at(opts.Name, err)
		}
		sample, fault := plan.sample(row, resolve)
		if fault != nil {
			fault.File, fault.Line = opts.Name, row.line
			return fault
		}
		count++
		if opts.AutoID {
			sample.ID = IntegerID(count)
		}
		if shuffle != nil {
			if sample, err = shuffle.next(sample); err != nil {
				return err
			}
		}
		if err := f(sample); err != nil {
			return err
		}
	}
	return nil
}

// rows yields the rows of a file, gzipped or not. An error ends it.
func rows(r io.Reader, p *plan, opts Options) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		text, err := decompress(r)
		if err != nil {
			yield(row{}, err)
			return
		}
		most := cmp.Or(opts.MaxBytes, bound.DatasetBytes)
		s := &scales{left: cmp.Or(opts.MaxValues, bound.DatasetValues)}
		buffered := bufio.NewReader(&boundedReader{r: text, left: most, bound: most})
		var all iter.Seq2[row, error]
		switch opts.Format {
		case JSONLines:
			all = jsonLines(buffered, s)
		case JSON:
			all = jsonDocument(buffered, s)
		case CSV:
			all = csvRecords(buffered, p, opts, s)
		default:
			yield(row{}, problem("unknown format %q; known: jsonl, json, csv", opts.Format))
			return
		}
		all(yield)
	}
}

// decompress unpacks gzip, which it detects by its first bytes, and passes everything else through.
func decompress(r io.Reader) (io.Reader, error) {
	packed := &counter{r: r}
	buffered := bufio.NewReader(packed)
	magic, err := buffered.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("dataset: %w", err)
	}
	if string(magic) != "\x1f\x8b" {
		return buffered, nil
	}
	unpacked, err := gzip.NewReader(buffered)
	if isDamage(err) || errors.Is(err, io.EOF) {
		return nil, damaged(err)
	}
	if err != nil {
		return nil, fmt.Errorf("dataset: %w", err)
	}
	return &unpacking{r: unpacked, packed: packed}, nil
}

// counter counts the bytes that are read.
type counter struct {
	r     io.Reader
	bytes int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.bytes += int64(n)
	return n, err
}

// unpacking marks faults as faults of the archive, and bounds the unpacked size.
type unpacking struct {
	r      io.Reader
	packed *counter
	bytes  int64
}

func (u *unpacking) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	u.bytes += int64(n)
	switch {
	case isDamage(err):
		err = damaged(err)
	case u.bytes > bound.DatasetRatioFreeBytes && u.bytes > bound.DatasetRatio*u.packed.bytes:
		err = problem("its gzip unpacks to more than %d times its size: split it, or give it unpacked", bound.DatasetRatio)
	}
	return n, err
}

// isDamage reports whether an error of unpacking is one of the archive, not of the stream that it comes in.
func isDamage(err error) bool {
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	return corrupt || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF)
}

func damaged(err error) *Error {
	return problem("its gzip is cut off or damaged (%v): pack or fetch the file anew", err)
}

// boundedReader fails if there are more bytes than allowed.
type boundedReader struct {
	r           io.Reader
	left, bound int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	// One byte more than allowed proves that there is more.
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if int64(n) > b.left {
		return int(b.left), problem("it is larger than %d bytes after decompression: split it", b.bound)
	}
	b.left -= int64(n)
	if _, ok := errors.AsType[*Error](err); err != nil && !ok && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("cannot be read: %w", err)
	}
	return n, err
}
