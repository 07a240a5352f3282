import java.io.*;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Arrays;

class HttpClient {
    public static void main(String[] arguments) throws Exception {
        var client = java.net.http.HttpClient.newHttpClient();
        var in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        var out = new PrintStream(System.out, true, "UTF-8");
        for (String line; (line = in.readLine()) != null; ) {
            var field = line.split("\t", -1);
            var body = field[3].isEmpty()
                ? BodyPublishers.noBody() : BodyPublishers.ofString(field[3]);
            var request = HttpRequest.newBuilder(URI.create(field[2])).method(field[1], body);
            for (var header : Arrays.copyOfRange(field, 4, field.length)) {
                var pair = header.split(": ", 2);
                request.header(pair[0], pair[1]);
            }
            for (int n = Integer.parseInt(field[0]); n > 0; n--) {
                var response = client.send(request.build(), BodyHandlers.ofString());
                var text = new StringBuilder(response.statusCode() + "\t" + response.body());
                response.headers().map().forEach((name, values) ->
                    values.forEach(value -> text.append("\t" + name + ": " + value)));
                out.println(text);
            }
        }
    }
}
