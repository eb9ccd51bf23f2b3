package eval

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/dataset"
)

// Blobs keeps bodies by their content, apart for each project.
type Blobs interface {
	// Put stores a body and returns its reference once it is durable.
	Put(ctx context.Context, project string, r io.Reader, mediaType string) (*contentv1.BlobRef, error)
	// Open reads a body. It fails with NOT_FOUND if there is none.
	Open(ctx context.Context, project, hash string) (io.ReadCloser, error)
}

// readSamples reads the samples of a specification: it reads and checks all rows of the dataset, then keeps the
// selected ones.
func readSamples(ctx context.Context, blobs Blobs, project string, spec *agentv1.EvalSpec) (*Samples, error) {
	samples, err := source(ctx, blobs, project, spec.GetDataset())
	if err != nil {
		return nil, err
	}
	if samples.Len() == 0 {
		return nil, rpcerr.InvalidField("spec.dataset", "dataset %s has no samples", spec.GetDataset().GetName())
	}
	return selected(ctx, samples, spec)
}

// source reads all samples of a dataset, each with its id.
func source(ctx context.Context, blobs Blobs, project string, from *agentv1.Dataset) (*Samples, error) {
	switch s := from.GetSource().(type) {
	case *agentv1.Dataset_Inline:
		return inline(s.Inline.GetSamples())
	case *agentv1.Dataset_File:
		return file(ctx, blobs, project, from, s.File)
	case *agentv1.Dataset_Worker:
		return nil, rpcerr.NotBuiltField("spec.dataset.worker", "a dataset made by a worker")
	}
	return nil, rpcerr.InvalidField("spec.dataset", "a dataset needs a source: inline samples or a file")
}

// collector packs and numbers samples while they are read.
type collector struct {
	samples Samples
	ids     dataset.IDs
}

// add packs a sample, which it changes, under its id.
func (c *collector) add(s *agentv1.Sample, id dataset.ID) error {
	id, err := c.ids.Next(id, c.samples.id)
	if err != nil {
		return err
	}
	s.Id, s.IntegerId = id.String(), id.IsInteger()
	return c.samples.add(s)
}

func inline(given []*agentv1.Sample) (*Samples, error) {
	var all collector
	for i, s := range given {
		var id dataset.ID
		if s.GetId() != "" || s.GetIntegerId() {
			var err error
			if id, err = dataset.ParseID(s.GetId(), s.GetIntegerId()); err != nil {
				return nil, rpcerr.InvalidField(fmt.Sprintf("spec.dataset.inline.samples[%d].id", i), "%v", err)
			}
		}
		s = proto.CloneOf(s)
		for _, m := range s.GetInput() {
			m.Source = modelv1.MessageSource_MESSAGE_SOURCE_INPUT
		}
		if err := checkMedia(s.GetInput()); err != nil {
			return nil, rpcerr.InvalidField(fmt.Sprintf("spec.dataset.inline.samples[%d].input", i), "%v", err)
		}
		if err := all.add(s, id); err != nil {
			return nil, rpcerr.InvalidField(fmt.Sprintf("spec.dataset.inline.samples[%d].id", i), "%v", err)
		}
	}
	return &all.samples, nil
}

func file(ctx context.Context, blobs Blobs, project string, from *agentv1.Dataset, f *agentv1.DatasetFile) (*Samples, error) {
	fields, err := dataset.ParseFields([]byte(f.GetFieldsJson()))
	if err != nil {
		return nil, rpcerr.In("spec.dataset.file", err)
	}
	if err := blob.CheckName(project, f.GetBlob().GetHash()); err != nil {
		return nil, rpcerr.InvalidField("spec.dataset.file.blob.hash", "%v", err)
	}
	body, err := blobs.Open(ctx, project, f.GetBlob().GetHash())
	if err != nil {
		return nil, rpcerr.Wrap(err, "dataset %s", from.GetName())
	}
	defer body.Close()
	var all collector
	err = dataset.Each(ctx, body, dataset.Options{
		Name: from.GetName(), Format: dataset.Format(enum.Word(f.GetFormat())), Fields: fields, AutoID: f.GetAutoId(),
		ShuffleChoices: f.ShuffleChoicesSeed, Delimiter: f.GetDelimiter(), Columns: f.GetColumns(),
	}, func(s dataset.Sample) error {
		m, err := message(&s)
		if err != nil {
			return rpcerr.InvalidField("spec.dataset", "sample %d: %v", all.samples.Len()+1, err)
		}
		return all.add(m, s.ID)
	})
	if err != nil {
		fault, ofContent := errors.AsType[*dataset.Error](err)
		if !ofContent {
			return nil, rpcerr.Wrap(err, "dataset %s", from.GetName())
		}
		fault.File = cmp.Or(from.GetLocation(), fault.File, from.GetName())
		return nil, rpcerr.InvalidField("spec.dataset", "%v", err)
	}
	return &all.samples, nil
}

// message converts a sample of a dataset.
func message(s *dataset.Sample) (*agentv1.Sample, error) {
	m := &agentv1.Sample{
		Choices: s.Choices,
		Target:  &agentv1.Target{Values: s.Targets, List: s.TargetIsList},
	}
	if s.Messages == nil {
		m.InputText = true
		user := chat.User(s.Text)
		user.Source = modelv1.MessageSource_MESSAGE_SOURCE_INPUT
		m.Input = []*modelv1.ChatMessage{user}
	}
	for _, raw := range s.Messages {
		parsed, err := chat.ParseMessage(raw)
		if err != nil {
			return nil, err
		}
		m.Input = append(m.Input, parsed)
	}
	if err := checkMedia(m.GetInput()); err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	if s.Metadata != nil {
		m.MetadataJson = string(orderedjson.Append(nil, s.Metadata))
	}
	for _, f := range s.Files {
		content, err := contentOf(f.Content)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", f.Path, err)
		}
		if m.Files == nil {
			m.Files = map[string]*agentv1.SampleFile{}
		}
		m.Files[f.Path] = &agentv1.SampleFile{Body: &agentv1.SampleFile_Content{Content: content}}
	}
	if s.Setup != nil {
		setup, err := contentOf(*s.Setup)
		if err != nil {
			return nil, fmt.Errorf("setup: %w", err)
		}
		m.Setup = string(setup)
	}
	if s.Sandbox != nil {
		m.Sandbox = &sandboxv1.SandboxSpec{Driver: s.Sandbox.Type}
		if s.Sandbox.Config != nil {
			m.Sandbox.DriverConfigJson = s.Sandbox.Config.Text
		}
	}
	return m, nil
}

// checkMedia fails for media that is neither part of a message nor stored: models are sent no other.
func checkMedia(messages []*modelv1.ChatMessage) error {
	const shown = 100
	for i, m := range messages {
		for j, part := range m.GetContent().GetList().GetParts() {
			media := chat.Media(part)
			if media == nil || media.GetBlob() != nil || strings.HasPrefix(media.GetUri(), "data:") {
				continue
			}
			return fmt.Errorf("part %d of message %d is at %q, which is not read: give it as a data URI", j+1, i+1, headtail.Mark(media.GetUri(), shown, "…"))
		}
	}
	return nil
}

// contentOf returns the bytes of a content. Only data URIs are decoded: a dataset that came as a body has no folder of
// files.
func contentOf(c dataset.Content) ([]byte, error) {
	head, data, ok := strings.Cut(c.Text, ",")
	if !ok || !strings.HasPrefix(head, "data:") {
		return []byte(c.Text), nil
	}
	if strings.HasSuffix(head, ";base64") {
		return base64.StdEncoding.DecodeString(data)
	}
	text, err := url.PathUnescape(data)
	return []byte(text), err
}

// selected shuffles the samples and keeps those that the specification selects.
func selected(ctx context.Context, samples *Samples, spec *agentv1.EvalSpec) (*Samples, error) {
	var sel dataset.Selection
	if spec.GetLimit() != nil {
		sel.Range = &dataset.Range{Start: int(spec.GetLimit().GetStart()), End: int(spec.GetLimit().GetEnd())}
	}
	for _, id := range spec.GetSampleIds() {
		sel.IDs = append(sel.IDs, dataset.TextID(id))
	}
	var order []int
	switch {
	case spec.ShuffleSeed != nil:
		order = dataset.Order(spec.GetShuffleSeed(), samples.Len())
	case sel.Range == nil && sel.IDs == nil:
		return samples, nil
	default:
		order = make([]int, samples.Len())
		for i := range order {
			order[i] = i
		}
	}
	taken, _, err := sel.Take(ctx, order, samples.id)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		if fault, ok := errors.AsType[*dataset.Error](err); ok {
			fault.File = spec.GetDataset().GetName()
		}
		return nil, rpcerr.InvalidField("spec.sample_ids", "%v", err)
	}
	if len(taken) == 0 {
		return nil, rpcerr.InvalidField("spec.limit", "no sample is left of the %d in dataset %s", samples.Len(), spec.GetDataset().GetName())
	}
	return samples.pick(taken), nil
}

// datasetMediaType is that of the samples as an eval keeps them: a serialized SampleList.
const datasetMediaType = "application/vnd.evalfleet.samples+protobuf"

// storeSamples keeps an eval's samples as one body.
func storeSamples(ctx context.Context, blobs Blobs, project string, samples *Samples) (*contentv1.BlobRef, error) {
	return blobs.Put(ctx, project, samples.reader(), datasetMediaType)
}

// loadSamples reads an eval's samples back.
func loadSamples(ctx context.Context, blobs Blobs, project string, ref *contentv1.BlobRef) (*Samples, error) {
	body, err := blobs.Open(ctx, project, ref.GetHash())
	if err != nil {
		return nil, fmt.Errorf("open the samples: %w", err)
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read the samples: %w", err)
	}
	samples, err := unpack(b)
	if err != nil {
		return nil, fmt.Errorf("read the samples: %w", err)
	}
	return samples, nil
}
