package dataset_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/choice"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/dataset"
)

func TestGoldenDatasetRead(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "dataset-read", goldentest.Load(t, "eval/dataset-read.jsonl"), driveRead)
}

// readCase is a recorded reading of a file.
type readCase struct {
	Input struct {
		File    string         `json:"file"`
		Text    string         `json:"text"`
		Fields  map[string]any `json:"fields"`
		Options readOptions    `json:"options"`
	} `json:"input"`
}

type readOptions struct {
	AutoID     bool            `json:"auto_id"`
	Limit      *int            `json:"limit"`
	Delimiter  string          `json:"delimiter"`
	Fieldnames []string        `json:"fieldnames"`
	Shuffle    json.RawMessage `json:"shuffle"`
	Seed       *int64          `json:"seed"`
	Generic    bool            `json:"generic"`
}

// shuffle is the seed of an order by chance: shuffle may be the seed itself, or true beside one; nil keeps the order.
func (o readOptions) shuffle(t *goldentest.T) *int64 {
	var on bool
	var seed int64
	switch {
	case o.Shuffle == nil || string(o.Shuffle) == "null":
		return nil
	case json.Unmarshal(o.Shuffle, &on) == nil:
		if !on {
			return nil
		}
	default:
		require.NoError(t, json.Unmarshal(o.Shuffle, &seed))
		return &seed
	}
	if o.Seed != nil {
		seed = *o.Seed
	}
	return &seed
}

func driveRead(t *goldentest.T, c goldentest.Case) {
	var in readCase
	require.NoError(t, c.Decode(&in))
	parent := t.TempDir()
	dir := filepath.Join(parent, "d")
	require.NoError(t, os.Mkdir(dir, 0o750))
	for name, content := range map[string]string{in.Input.File: in.Input.Text, "setup.sh": "true\n", "data.txt": "data\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	d, err := open(t, filepath.Join(dir, in.Input.File), dataset.Options{
		Fields:    recordedFields(t, in.Input.Fields),
		AutoID:    in.Input.Options.AutoID,
		Delimiter: in.Input.Options.Delimiter,
		Columns:   in.Input.Options.Fieldnames,
	})
	if c.At("expect", "error") != nil {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	d, shuffled := in.Input.Options.arrange(t, d)
	samples := []any{}
	for _, s := range d.Samples {
		samples = append(samples, recorded(t, s, parent))
	}
	t.Equal(c.At("expect"), map[string]any{"samples": samples, "name": d.Name, "shuffled": shuffled})
}

// arrange brings the samples into an order by chance and leaves so many of them, as an evaluation does.
func (o readOptions) arrange(t *goldentest.T, d *whole) (arranged *whole, shuffled bool) {
	var sel dataset.Selection
	if o.Limit != nil {
		sel.Range = &dataset.Range{End: *o.Limit}
	}
	seed := o.shuffle(t)
	arranged, _, err := d.pick(seed, sel)
	require.NoError(t, err)
	return arranged, seed != nil
}

// recordedFields turns a recorded mapping, whose columns may all be missing, into Fields.
func recordedFields(t *goldentest.T, given map[string]any) dataset.Fields {
	mapped := map[string]any{}
	for name, source := range given {
		optional := func(column any) map[string]any { return map[string]any{"column": column, "optional": true} }
		columns, isList := source.([]any)
		switch {
		case name == "metadata" && isList:
			named := map[string]any{}
			for _, column := range columns {
				named[fmt.Sprint(column)] = optional(column)
			}
			source = named
		case name != "metadata":
			source = optional(source)
		}
		mapped[name] = source
	}
	raw, err := json.Marshal(mapped)
	require.NoError(t, err)
	fields, err := dataset.ParseFields(raw)
	require.NoError(t, err)
	return fields
}

// recorded turns a sample into the recorded form, which leaves out what is not given.
func recorded(t *goldentest.T, s dataset.Sample, parent string) map[string]any {
	path := func(c dataset.Content) string {
		if c.HostPath == "" {
			return c.Text
		}
		return "<dir>" + strings.TrimPrefix(c.HostPath, parent)
	}
	out := map[string]any{"input": s.Text, "target": s.Targets}
	if s.Messages != nil {
		raw, err := json.Marshal(s.Messages)
		require.NoError(t, err)
		messages, err := chat.ParseMessages(raw) // what the input becomes when a run begins
		require.NoError(t, err)
		for _, m := range messages {
			m.Id = ""
		}
		out["input"] = json.RawMessage(bytes.ReplaceAll(chat.MessagesJSON(messages), []byte(parent), []byte("<dir>")))
	}
	if !s.TargetIsList {
		require.Len(t, s.Targets, 1)
		out["target"] = s.Targets[0]
	}
	if s.ID.IsSet() {
		out["id"] = s.ID
	}
	if s.Choices != nil {
		out["choices"] = s.Choices
	}
	if s.Metadata != nil {
		out["metadata"] = s.Metadata
	}
	if s.Sandbox != nil {
		sandbox := map[string]any{"type": s.Sandbox.Type}
		if s.Sandbox.Config != nil {
			sandbox["config"] = path(*s.Sandbox.Config)
		}
		out["sandbox"] = sandbox
	}
	if s.Files != nil {
		files := map[string]any{}
		for _, f := range s.Files {
			files[f.Path] = path(f.Content)
		}
		out["files"] = files
	}
	if s.Setup != nil {
		out["setup"] = path(*s.Setup)
	}
	return out
}

func TestGoldenDatasetSelect(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "dataset-select", goldentest.Load(t, "eval/dataset-select.jsonl"), driveSelect)
}

func driveSelect(t *goldentest.T, c goldentest.Case) {
	var in struct {
		Input struct {
			IDs      []dataset.ID    `json:"ids"`
			Limit    json.RawMessage `json:"limit"`
			SampleID json.RawMessage `json:"sample_id"`
		} `json:"input"`
	}
	require.NoError(t, c.Decode(&in))
	d := whole{Name: "recorded"}
	for _, id := range in.Input.IDs {
		d.Samples = append(d.Samples, dataset.Sample{ID: id, Text: "q"})
	}
	selected, err := selectRecorded(&d, in.Input.Limit, in.Input.SampleID)
	if c.At("expect", "error") != nil {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	got := map[string]any{"status": "success", "ids": []any{}, "epochs": []any{}, "sample_ids": ids(selected.Samples)}
	if n := len(selected.Samples); n > 0 {
		got["epochs"], got["total"] = []int{1}, n
	}
	inLog := slices.Clone(selected.Samples)
	slices.SortStableFunc(inLog, func(a, b dataset.Sample) int { return strings.Compare(a.ID.SortKey(), b.ID.SortKey()) })
	got["ids"] = ids(inLog)
	t.Equal(c.At("expect"), got)
}

func selectRecorded(d *whole, limit, sampleID json.RawMessage) (*whole, error) {
	if err := d.assignIDs(); err != nil {
		return nil, err
	}
	var sel dataset.Selection
	var count int
	var span []int
	switch {
	case limit == nil:
	case json.Unmarshal(limit, &count) == nil:
		sel.Range = &dataset.Range{End: count}
	default:
		if err := json.Unmarshal(limit, &span); err != nil {
			return nil, err
		}
		sel.Range = &dataset.Range{Start: span[0], End: span[1]}
	}
	var one dataset.ID
	switch {
	case sampleID == nil:
	case json.Unmarshal(sampleID, &one) == nil:
		sel.IDs = []dataset.ID{one}
	default:
		if err := json.Unmarshal(sampleID, &sel.IDs); err != nil {
			return nil, err
		}
	}
	selected, _, err := d.pick(nil, sel)
	return selected, err
}

func ids(samples []dataset.Sample) []any {
	all := []any{}
	for _, s := range samples {
		all = append(all, s.ID)
	}
	return all
}

func TestGoldenDatasetShuffle(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "dataset-shuffle", goldentest.Load(t, "eval/dataset-shuffle.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		switch c.Op() {
		case "shuffle_choices":
			driveShuffleChoices(t, c)
		case "shuffle":
			driveShuffle(t, c)
		default:
			t.Skipf("no driver for %q", c.Op())
		}
	})
}

// driveShuffleChoices compares which choices the targets name; the order is the generator's.
func driveShuffleChoices(t *goldentest.T, c goldentest.Case) {
	var in struct {
		Input struct {
			Choices []string        `json:"choices"`
			Target  json.RawMessage `json:"target"`
			Seed    int64           `json:"seed"`
		} `json:"input"`
		Expect struct {
			Choices []string `json:"choices"`
		} `json:"expect"`
	}
	require.NoError(t, c.Decode(&in))
	row, err := json.Marshal(map[string]any{"input": "q", "choices": in.Input.Choices, "target": in.Input.Target})
	require.NoError(t, err)
	d, err := read(t.Context(), bytes.NewReader(row), dataset.Options{Format: dataset.JSONLines, ShuffleChoices: &in.Input.Seed})
	if c.At("expect", "error") != nil {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	got := d.Samples[0]
	named := []string{}
	for _, letter := range got.Targets {
		i, err := choice.Index(letter)
		require.NoError(t, err)
		named = append(named, got.Choices[i])
	}
	var want []string
	decode(t, c.At("expect", "target_choices"), &want)
	require.ElementsMatch(t, want, named) // which choices are right, in no order
	t.Equal(c.At("expect", "target_is_list"), got.TargetIsList)
	require.ElementsMatch(t, in.Expect.Choices, got.Choices)
}

func decode(t *goldentest.T, recorded, into any) {
	document, err := json.Marshal(recorded)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(document, into))
}

func driveShuffle(t *goldentest.T, c goldentest.Case) {
	var in struct {
		Input struct {
			Samples int         `json:"samples"`
			Options readOptions `json:"options"`
		} `json:"input"`
	}
	require.NoError(t, c.Decode(&in))
	var text strings.Builder
	for i := range in.Input.Samples {
		require.NoError(t, json.NewEncoder(&text).Encode(map[string]string{"input": fmt.Sprintf("q%d", i)}))
	}
	d, err := read(t.Context(), strings.NewReader(text.String()), dataset.Options{Format: dataset.JSONLines, AutoID: in.Input.Options.AutoID})
	require.NoError(t, err)
	d, shuffled := in.Input.Options.arrange(t, d)
	inputs := []string{}
	for _, s := range d.Samples {
		inputs = append(inputs, s.Text)
	}
	slices.Sort(inputs)
	var got any = inputs
	if in.Input.Options.Limit != nil {
		got = len(inputs) // which ones is the generator's matter
	}
	var wantIDs []dataset.ID
	decode(t, c.At("expect", "ids"), &wantIDs)
	gotIDs := []dataset.ID{}
	for _, s := range d.Samples {
		gotIDs = append(gotIDs, s.ID)
	}
	require.ElementsMatch(t, wantIDs, gotIDs) // the order is the generator's matter
	t.Equal(c.At("expect", "inputs_sorted"), got)
	t.Equal(c.At("expect", "shuffled"), shuffled)
}
