require "net/http"

class Client
  # Return the line for the response to a request, or for what was raised.
  def line(method, url, body, headers, seconds)
    uri = URI(url)
    @connection ||= Net::HTTP.start(uri.host, uri.port, use_ssl: uri.scheme == "https")
    @connection.read_timeout = seconds
    pairs = headers.to_h { |header| header.split(": ", 2) }
    request = Net::HTTPGenericRequest.new(method, !body.empty?, method != "HEAD", uri, pairs)
    request.body = body unless body.empty?
    response = @connection.request(request)
    received = response.each_capitalized.map { |name, value| "#{name}: #{value}" }
    [response.code, response.body, *received].join("\t")
  rescue StandardError => error
    "0\t#{error.class}"
  end
end

client = Client.new
while line = $stdin.gets(chomp: true)
  count, parallel, seconds, method, url, body, *headers = line.split("\t", -1)
  request = [method, url, body, headers, seconds.to_f]
  if parallel.empty?
    count.to_i.times { puts client.line(*request) }
  else
    puts Array.new(count.to_i) { Thread.new { Client.new.line(*request) } }.map(&:value)
  end
  $stdout.flush
end
