package dataset

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
)

// Format is the form of a dataset's file.
type Format string

// The formats. All are UTF-8, with or without a byte order mark, and may be gzipped, which is recognised from the content.
const (
	JSONLines Format = "jsonl" // one object a line
	JSON      Format = "json"  // a list of objects, or one object
	CSV       Format = "csv"   // a header and one row a record, quoted with "
)

// DefaultMaxBytes bounds a dataset's file where Options give no bound.
const DefaultMaxBytes = 256 << 20

// Options say how to read a dataset.
type Options struct {
	// Name is the dataset's name. Empty takes that of the file.
	Name string
	// Format is the file's form. Empty tells it from the file's ending: .jsonl, .json, .csv, .tsv or .tab, perhaps followed by .gz.
	Format Format
	// Fields tells where the fields of samples come from. The zero Fields takes the columns of the fields' names.
	Fields Fields
	// AutoID numbers the samples from 1 although the file may have ids.
	AutoID bool
	// Shuffle is the seed by which to shuffle the samples; nil leaves them.
	Shuffle *int64
	// ShuffleChoices is the seed by which to shuffle the choices of each sample; nil leaves them.
	ShuffleChoices *int64
	// Limit is how many samples to take, after shuffling; nil takes all.
	Limit *int
	// Delimiter separates the cells of CSV, one character. Empty is a comma, or a tab for .tsv and .tab.
	Delimiter string
	// Columns names the columns of CSV without a header. Nil takes the names from the first record.
	Columns []string
	// Dir is where files that samples name are looked for. Empty takes all such values as contents.
	Dir string
	// MaxBytes bounds the file after decompression. Zero is DefaultMaxBytes.
	MaxBytes int64
}

// at names the file in an *Error.
func at(path string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.File = path
	}
	return err
}

// Read reads a dataset from a stream whose Format is given. Faults of the content are an *Error.
func Read(r io.Reader, opts Options) (*Dataset, error) {
	plan, err := opts.Fields.compile()
	if err != nil {
		return nil, err
	}
	if opts.Limit != nil && *opts.Limit < 0 {
		return nil, problem("the limit is %d: give 0 or more", *opts.Limit)
	}
	resolve, closeDir, err := newResolver(opts.Dir)
	if err != nil {
		return nil, err
	}
	defer closeDir()
	d := &Dataset{Name: opts.Name, Samples: []Sample{}}
	for row, err := range rows(r, plan, opts) {
		if err != nil {
			return nil, at(opts.Name, err)
		}
		sample, err := plan.sample(row, resolve)
		if err != nil {
			err.File, err.Line = opts.Name, row.line
			return nil, err
		}
		if opts.AutoID {
			sample.ID = IntegerID(len(d.Samples) + 1)
		}
		d.Samples = append(d.Samples, sample)
	}
	return d, d.arrange(opts)
}

// arrange shuffles and cuts the dataset.
func (d *Dataset) arrange(opts Options) error {
	if opts.Shuffle != nil {
		d.Shuffle(*opts.Shuffle)
	}
	if opts.ShuffleChoices != nil {
		if err := d.ShuffleChoices(*opts.ShuffleChoices); err != nil {
			return err
		}
	}
	if opts.Limit != nil {
		d.Samples = d.Samples[:min(*opts.Limit, len(d.Samples))]
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
		bound := opts.MaxBytes
		if bound == 0 {
			bound = DefaultMaxBytes
		}
		buffered := bufio.NewReader(&boundedReader{r: text, left: bound, bound: bound})
		var all iter.Seq2[row, error]
		switch opts.Format {
		case JSONLines:
			all = jsonLines(buffered)
		case JSON:
			all = jsonDocument(buffered)
		case CSV:
			all = csvRecords(buffered, p, opts)
		default:
			yield(row{}, problem("unknown format %q; known: jsonl, json, csv", opts.Format))
			return
		}
		all(yield)
	}
}

// decompress unpacks what begins as gzip does and leaves everything else as it is.
func decompress(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(r)
	magic, err := buffered.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("dataset: %w", err)
	}
	if string(magic) != "\x1f\x8b" {
		return buffered, nil
	}
	unpacked, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, damaged(err)
	}
	return &unpacking{unpacked}, nil
}

// unpacking says of a fault that it is one of the archive.
type unpacking struct{ r io.Reader }

func (u *unpacking) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = damaged(err)
	}
	return n, err
}

func damaged(err error) *Error {
	return problem("its gzip is cut off or damaged (%v): pack or fetch the file anew", err)
}

// boundedReader fails where more bytes come than allowed.
type boundedReader struct {
	r           io.Reader
	left, bound int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	// One byte more than allowed shows that there is more.
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if int64(n) > b.left {
		return int(b.left), problem("it is larger than %d bytes after decompression: split it, or raise the bound", b.bound)
	}
	b.left -= int64(n)
	if _, ok := errors.AsType[*Error](err); err != nil && !ok && !errors.Is(err, io.EOF) {
		err = problem("cannot be read: %v", err)
	}
	return n, err
}
