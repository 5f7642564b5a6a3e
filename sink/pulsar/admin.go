package pulsar

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// admin speaks the broker's REST API, version 2
// (https://pulsar.apache.org/admin-rest-api/). Its methods may be called from
// any goroutine.
type admin struct {
	base, token string
	http        *http.Client
}

const maxAdminAnswer = 1 << 20

func newAdmin(o *Options) *admin {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TLS != nil {
		t.TLSClientConfig = o.TLS.Clone()
	}
	return &admin{base: strings.TrimSuffix(o.AdminURL, "/") + "/admin/v2/", token: o.Token,
		http: &http.Client{Transport: t, Timeout: 15 * time.Second}}
}

func (a *admin) close() { a.http.CloseIdleConnections() }

// status is an answer that is no success.
type status struct {
	code         int
	path, reason string
}

func (s *status) Error() string {
	return fmt.Sprintf("pulsar: admin API: %s answered %d %s: %s", s.path, s.code, http.StatusText(s.code), s.reason)
}

// do makes a request. out is left alone when the answer is empty, which means
// "not set".
func (a *admin) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, body)
	if err != nil {
		return fmt.Errorf("pulsar: admin API: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	res, err := a.http.Do(req)
	if err != nil {
		return fmt.Errorf("pulsar: admin API: %w", err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAdminAnswer))
	if err != nil {
		return fmt.Errorf("pulsar: admin API: %s: %w", path, err)
	}
	if res.StatusCode >= 300 {
		var why struct{ Reason string }
		if json.Unmarshal(answer, &why) != nil || why.Reason == "" {
			why.Reason = string(answer[:min(len(answer), 200)])
		}
		return &status{res.StatusCode, path, why.Reason}
	}
	if out == nil || len(bytes.TrimSpace(answer)) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("pulsar: admin API: %s answers something else: %w", path, err)
	}
	return nil
}

func isStatus(err error, code int) bool {
	s, ok := err.(*status)
	return ok && s.code == code
}

func (n topicName) path() string {
	return "persistent/" + n.namespace + "/" + url.PathEscape(n.local)
}

// lookup tells whether the topic exists, and its number of partitions.
func (a *admin) lookup(ctx context.Context, n topicName) (exists bool, partitions int, err error) {
	var meta struct{ Partitions int }
	err = a.do(ctx, http.MethodGet, n.path()+"/partitions?checkAllowAutoCreation=false", nil, &meta)
	if isStatus(err, http.StatusNotFound) {
		return false, 0, nil
	}
	return err == nil, meta.Partitions, err
}

// create creates the topic; one that exists is no error.
func (a *admin) create(ctx context.Context, n topicName, partitions int32) error {
	var err error
	if partitions > 1 {
		err = a.do(ctx, http.MethodPut, n.path()+"/partitions", partitions, nil)
	} else {
		err = a.do(ctx, http.MethodPut, n.path(), nil, nil)
	}
	if isStatus(err, http.StatusConflict) {
		return nil
	}
	return err
}

// maxMessageSize returns the policy that applies to the topic; 0: none.
func (a *admin) maxMessageSize(ctx context.Context, n topicName) (size int, err error) {
	err = a.do(ctx, http.MethodGet, n.path()+"/maxMessageSize?applied=true", nil, &size)
	return size, err
}

type retention struct {
	Minutes int64 `json:"retentionTimeInMinutes"`
	MB      int64 `json:"retentionSizeInMB"`
}

func (a *admin) retention(ctx context.Context, n topicName) (r retention, err error) {
	err = a.do(ctx, http.MethodGet, n.path()+"/retention?applied=true", nil, &r)
	return r, err
}

func (a *admin) subscriptions(ctx context.Context, n topicName) (names []string, err error) {
	err = a.do(ctx, http.MethodGet, n.path()+"/subscriptions", nil, &names)
	return names, err
}

func (a *admin) namespace(ctx context.Context, namespace string) error {
	return a.do(ctx, http.MethodGet, "namespaces/"+namespace, nil, nil)
}
