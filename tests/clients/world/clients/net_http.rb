require "net/http"

connection = nil
while line = $stdin.gets(chomp: true)
  count, method, url, body, *headers = line.split("\t", -1)
  uri = URI(url)
  connection ||= Net::HTTP.start(uri.host, uri.port)
  count.to_i.times do
    pairs = headers.to_h { |header| header.split(": ", 2) }
    request = Net::HTTPGenericRequest.new(method, !body.empty?, true, uri, pairs)
    request.body = body unless body.empty?
    response = connection.request(request)
    received = response.each_capitalized.map { |name, value| "#{name}: #{value}" }
    puts [response.code, response.body, *received].join("\t")
  end
  $stdout.flush
end
